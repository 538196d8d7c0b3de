#pragma once

#include <string>

namespace tandem {

/// Returns the version and, in brackets, a hash of the library's sources and LibTorch's
/// version. Ranks with different build ids may compute different results.
std::string build_id();

}  // namespace tandem

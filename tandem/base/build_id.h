#pragma once

#include <string>

namespace tandem {

/// Returns tandem's version and, in brackets, a hash of its sources and of LibTorch's
/// version. Ranks with different build ids may compute different results.
std::string build_id();

}  // namespace tandem

#pragma once

#include <string>

namespace tandem {

/// The version and, in brackets, what it was built from: a hash of the library's
/// sources and of LibTorch's version. Ranks of other builds cannot be told to compute
/// alike.
std::string build_id();

}  // namespace tandem

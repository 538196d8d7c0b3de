#pragma once

#include <string>

namespace tandem::cuda {

/// Why the current device can run none of this build's kernels, in CUDA's words; ""
/// where it can.
std::string why_no_code();

}  // namespace tandem::cuda

#pragma once

#include <string>

namespace tandem {

/// Path of a file that is installed with this program: in its folder, or in
/// PREFIX/libexec/tandem. "" if it is in neither.
std::string find_installed(const std::string& file);

/// Path of libtandem_cuda.so (comm/cuda/cuda_library.h), or of the library that the
/// environment variable TANDEM_CUDA_LIBRARY names; "" if this build has none.
std::string cuda_library_path();

/// Whether this host has an NVIDIA GPU, by its device files. Asking CUDA would take
/// longer than a short run.
bool host_has_gpu();

}  // namespace tandem

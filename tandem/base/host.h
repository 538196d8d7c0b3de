#pragma once

#include <string>

namespace tandem {

/// What this host calls itself.
std::string host_name();

/// A text that is the same in two processes exactly where process ids and addresses
/// mean the same to both: in one boot of the kernel and one container.
std::string host_identity();

/// Returns the number of NVIDIA GPUs that this process may use: all GPUs of the host,
/// or as many as CUDA_VISIBLE_DEVICES lists.
int count_gpus();

/// Whether this host has an NVIDIA GPU, by its device files. Asking CUDA would take
/// longer than a short run.
bool host_has_gpu();

}  // namespace tandem

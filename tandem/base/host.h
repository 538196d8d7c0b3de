#pragma once

#include <string>

namespace tandem {

/// Returns the name of this host.
std::string host_name();

/// Returns a text that identifies the running kernel and the container (its namespaces
/// of process ids and networks). Two processes get equal texts only if they can use
/// each other's process ids and network addresses.
std::string host_identity();

/// Returns a field of the first CPU in /proc/cpuinfo, such as "model name"; "" if there
/// is no such field.
std::string cpu_field(const std::string& name);

/// Returns the number of NVIDIA GPUs that this process may use: all GPUs of the host,
/// or as many as CUDA_VISIBLE_DEVICES lists.
int count_gpus();

/// Returns whether this host has an NVIDIA GPU. It checks device files, because
/// initializing CUDA would take longer than a short run.
bool host_has_gpu();

}  // namespace tandem

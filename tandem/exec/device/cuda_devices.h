#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// A GPU of this host.
struct CudaDevice {
  std::string name;
  // Compute capability, "9.0".
  std::string capability;
  double memory_gib = 0;
};

/// What a program with CUDA found.
struct CudaFacts {
  std::vector<CudaDevice> devices;
  // Why there are none, in the driver's own words; "" where there are.
  std::string why_none;
};

/// "13.0", "2.28.9"; empty: not there.
struct CudaVersions {
  std::string driver;
  std::string runtime;
  std::string cudnn;
  std::string nccl;
};

/// Asks the driver, which takes its time at the first call. Not before a fork: a child
/// cannot use the GPUs that its parent has seen. Thread-safe.
CudaFacts find_cuda_devices();

/// Loads what it asks. Thread-safe.
CudaVersions find_cuda_versions();

/// A run on the device of that number: LibTorch's allocator and current stream, and the
/// kernels of kernels/cuda. It becomes the calling thread's device, and a stream of its
/// own there the thread's current one.
///
/// Throws ConfigError where there is no such device, or this build has no code for it.
Placement cuda_placement(int index, const CudaFacts& facts = find_cuda_devices());

/// What LibTorch's allocator of this process took of the device, at most so far, what
/// it keeps for later included. Thread-safe; only for a device with a placement.
int64_t peak_cuda_bytes(int index);

}  // namespace tandem

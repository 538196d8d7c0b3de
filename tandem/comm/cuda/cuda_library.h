#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/core/placement.h"
#include "tandem/core/torch_compat.h"

namespace c10d {
class Store;
class TANDEM_C10D_GROUP;
}  // namespace c10d

namespace tandem {

/// A GPU of this host.
struct CudaDevice {
  std::string name;
  // Compute capability, "9.0".
  std::string capability;
  double memory_gib = 0;
};

/// The GPUs that this process can use.
struct CudaFacts {
  std::vector<CudaDevice> devices;
  // The driver's reason if there are no GPUs, otherwise "".
  std::string why_none;
};

/// Versions such as "13.0" or "2.28.9"; empty: not installed.
struct CudaVersions {
  std::string driver;
  std::string runtime;
  std::string cudnn;
  std::string nccl;
};

/// The functions of libtandem_cuda.so, which alone is compiled with CUDA's headers and
/// brings LibTorch's operators for CUDA into the process. All are thread-safe and throw
/// std::exception with CUDA's message.
struct CudaLibrary {
  /// Returns the GPUs of this host. It asks the driver, so do not call it before a
  /// fork: a child process cannot use GPUs that its parent has used.
  CudaFacts (*find_devices)();

  /// Returns the versions of the driver and of the libraries.
  CudaVersions (*find_versions)();

  /// Makes a GPU the calling thread's current device.
  at::Device (*use_device)(int index);

  /// Free memory of a GPU, in bytes.
  int64_t (*free_bytes)(int index);

  /// Peak memory that LibTorch's allocator has reserved on a GPU, in bytes.
  int64_t (*peak_bytes)(int index);

  /// Returns a GPU's PCI bus ID, which is equal in all processes of the host.
  std::string (*bus_id)(int index);

  /// ProcessGroupNCCL. Its watchdog aborts an operation after `timeout` and leaves the
  /// process alive.
  c10::intrusive_ptr<c10d::TANDEM_C10D_GROUP> (*make_nccl)(
      c10::intrusive_ptr<c10d::Store> store, int rank, int size,
      std::chrono::milliseconds timeout);
};

/// Loads cuda_library_path() (base/files.h) at the first call. Call it before any code
/// asks LibTorch for CUDA, because LibTorch caches the answer. Thread-safe.
///
/// Throws ConfigError if there is no such library or it cannot be loaded.
const CudaLibrary& load_cuda_library();

/// Returns a placement on a GPU, which becomes the calling thread's current device.
///
/// Throws ConfigError if there is no such GPU.
Placement cuda_placement(const CudaLibrary& cuda, int index, const CudaFacts& facts);

}  // namespace tandem

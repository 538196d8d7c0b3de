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
  // Compute capability, such as "9.0".
  std::string capability;
  double memory_gib = 0;
};

/// The GPUs that this process can use.
struct CudaFacts {
  std::vector<CudaDevice> devices;
  // Reason why there are no GPUs; "" if there are GPUs.
  std::string why_none;
};

/// Versions such as "13.0" or "2.28.9"; "" for a library that is not installed.
struct CudaVersions {
  std::string driver;
  std::string runtime;
  std::string cudnn;
  std::string nccl;
};

/// Functions of libtandem_cuda.so. Only this library is compiled with CUDA's headers.
/// Loading it also loads LibTorch's CUDA operators. All functions are thread-safe. On
/// failure they throw a std::exception with CUDA's or LibTorch's message.
struct CudaLibrary {
  /// Returns the GPUs that this process can use. The call initializes CUDA, so do not
  /// call it before a fork: a child process cannot use CUDA after its parent has
  /// initialized it.
  CudaFacts (*find_devices)();

  /// Returns the versions of the driver and of CUDA's libraries.
  CudaVersions (*find_versions)();

  /// Makes a GPU the calling thread's current device, and returns this device.
  at::Device (*use_device)(int index);

  /// Returns the free memory of a GPU, in bytes.
  int64_t (*free_bytes)(int index);

  /// Returns the peak memory that LibTorch's allocator has reserved on a GPU, in bytes.
  int64_t (*peak_bytes)(int index);

  /// Returns a GPU's PCI bus ID, which is equal in all processes of the host.
  std::string (*bus_id)(int index);

  /// Returns a ProcessGroupNCCL. Its watchdog aborts an operation after `timeout`
  /// without ending the process.
  c10::intrusive_ptr<c10d::TANDEM_C10D_GROUP> (*make_nccl)(
      c10::intrusive_ptr<c10d::Store> store, int rank, int size,
      std::chrono::milliseconds timeout);
};

/// Returns the functions of libtandem_cuda.so. The first call loads the library from
/// cuda_library_path() (base/files.h). Make the first call before any code queries
/// whether CUDA is available, because LibTorch caches the answer. Thread-safe.
///
/// Throws ConfigError if this build has no such library or the library cannot be
/// loaded.
const CudaLibrary& load_cuda_library();

/// Returns a placement on a GPU, and makes the GPU the calling thread's current device.
///
/// Throws ConfigError if there is no such GPU or it cannot be used.
Placement cuda_placement(const CudaLibrary& cuda, int index, const CudaFacts& facts);

}  // namespace tandem

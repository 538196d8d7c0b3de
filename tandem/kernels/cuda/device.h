#pragma once

/// What a kernel's source (.cu) includes, and nothing else does. nvcc reads the CUDA
/// runtime here. Tests compile the same sources as C++, with TANDEM_CUDA_EMULATOR
/// naming a header that runs a block's threads one after another on the CPU
/// (tests/cuda/emulator/block_emulator.h) and has the same words.
///
/// A kernel stands in an unnamed namespace, knows pointers to the device's memory and
/// numbers, and reads from memory what differs from step to step: values that the host
/// passes stay as they were in a captured graph. Of CUDA's words there are those of the
/// emulator; what a kernel needs more, the emulator gets first.

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/stream.h"

/// Before a loop whose number of rounds is known: without it arrays that it indexes may
/// lie in memory, not in registers.
#define TANDEM_UNROLL _Pragma("unroll")

namespace tandem::cuda {

/// The block's dynamic shared memory.
template <typename T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char tandem_dynamic_shared[];
  return reinterpret_cast<T*>(tandem_dynamic_shared);
}

/// kernel<<<grid, block, shared_bytes, stream>>>(arguments...), which C++ does not
/// know. Throws Error when CUDA refuses it, or has failed before.
template <typename... Parameters, typename... Arguments>
void launch(
    const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
    size_t shared_bytes, Stream stream, Arguments... arguments) {
  kernel<<<grid, block, shared_bytes, stream>>>(arguments...);
  const cudaError_t failed = cudaGetLastError();
  if (failed != cudaSuccess) {
    throw Error(
        std::string("[cuda] kernel ") + name +
        " was not started: " + cudaGetErrorString(failed));
  }
}

/// For which GPUs the code was compiled that the device runs: 75 for compute capability
/// 7.5. Throws Error where there is none for this device.
template <typename... Parameters>
int code_architecture(const char* name, void (*kernel)(Parameters...)) {
  cudaFuncAttributes attributes{};
  const cudaError_t failed = cudaFuncGetAttributes(&attributes, kernel);
  if (failed != cudaSuccess) {
    throw Error(
        std::string("[cuda] kernel ") + name +
        " cannot be started: " + cudaGetErrorString(failed));
  }
  return attributes.ptxVersion;
}

}  // namespace tandem::cuda

#else
#include TANDEM_CUDA_EMULATOR
#endif

#include <cstdint>

namespace tandem::cuda {

constexpr unsigned kWarpSize = 32;
constexpr unsigned kAllLanes = 0xffffffff;

/// How many blocks of `each` there are in `count`.
inline unsigned blocks_of(int64_t count, int64_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

}  // namespace tandem::cuda

#include "tandem/exec/device/cuda_devices.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "tandem/base/error.h"
#include "tandem/comm/nccl/nccl_api.h"
#include "tandem/exec/device/cuda_copy_stream.h"
#include "tandem/exec/device/cuda_graph.h"
#include "tandem/exec/device/cuda_kernels.h"
#include "tandem/kernels/cuda/probe.h"

namespace tandem {

namespace {

// CUDA's 13020 is 13.2.
std::string version_text(int version) {
  return version == 0 ? "" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// cuDNN's 91900 is 9.19.0, NCCL's 22809 2.28.9.
std::string long_version_text(int64_t version) {
  return version == 0
             ? ""
             : fmt::format(
                   "{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

int nccl_version() {
  int version = 0;
  try {
    load_nccl()->get_version(&version);
  } catch (const ConfigError&) {
    return 0;
  }
  return version;
}

// What LibTorch's allocator keeps for later is not free to CUDA: a little less.
int64_t free_bytes(int index) {
  int before = 0;
  size_t free = 0;
  size_t total = 0;
  const bool known = cudaGetDevice(&before) == cudaSuccess &&
                     cudaSetDevice(index) == cudaSuccess &&
                     cudaMemGetInfo(&free, &total) == cudaSuccess;
  cudaSetDevice(before);
  return known ? static_cast<int64_t>(free) : 0;
}

at::Tensor pinned_words(int64_t count) {
  return at::empty({count}, at::TensorOptions(at::kLong).pinned_memory(true));
}

CudaDevice facts_of(int index) {
  cudaDeviceProp properties{};
  const cudaError_t failed = cudaGetDeviceProperties(&properties, index);
  if (failed != cudaSuccess) {
    throw Error(
        fmt::format("[device] cuda:{} does not answer: ", index) +
        cudaGetErrorString(failed));
  }
  return {
      properties.name, fmt::format("{}.{}", properties.major, properties.minor),
      static_cast<double>(properties.totalGlobalMem) / (1 << 30)};
}

}  // namespace

CudaFacts find_cuda_devices() {
  CudaFacts facts;
  int count = 0;
  const cudaError_t failed = cudaGetDeviceCount(&count);
  if (failed != cudaSuccess || count == 0) {
    facts.why_none =
        failed == cudaSuccess ? "the driver has none" : cudaGetErrorString(failed);
    return facts;
  }
  for (int i = 0; i < count; ++i) {
    facts.devices.push_back(facts_of(i));
  }
  return facts;
}

CudaVersions find_cuda_versions() {
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const auto& hooks = at::detail::getCUDAHooks();
  return {
      version_text(driver), version_text(runtime),
      long_version_text(hooks.hasCuDNN() ? hooks.versionCuDNN() : 0),
      long_version_text(nccl_version())};
}

Placement cuda_placement(int index, const CudaFacts& facts) {
  if (!facts.why_none.empty()) {
    throw ConfigError(
        "[device] cuda was asked for, and there is no GPU to use: " + facts.why_none +
        "; mend the driver, or use --device cpu");
  }
  const auto count = static_cast<int>(facts.devices.size());
  if (index >= count) {
    throw ConfigError(fmt::format(
        "[device] cuda:{} was asked for, and this host has {}, cuda:0{}; choose one of "
        "them",
        index, count == 1 ? "one GPU" : fmt::format("{} GPUs", count),
        count == 1 ? "" : fmt::format(" to cuda:{}", count - 1)));
  }
  const cudaError_t failed = cudaSetDevice(index);
  if (failed != cudaSuccess) {
    throw ConfigError(
        fmt::format("[device] cuda:{} cannot be used: ", index) +
        cudaGetErrorString(failed) + "; choose another one, or --device cpu");
  }
  const auto& device = facts.devices[static_cast<size_t>(index)];
  const std::string no_code = cuda::why_no_code();
  if (!no_code.empty()) {
    throw ConfigError(fmt::format(
        "[device] this build has no code for cuda:{}, {} of compute capability {} "
        "({}); "
        "add it to TANDEM_CUDA_ARCHITECTURES and build again, or use --device cpu",
        index, device.name, device.capability, no_code));
  }
  // Nothing on CUDA's default stream can be captured; and autograd goes on where
  // parameters were first seen.
  c10::cuda::setCurrentCUDAStream(
      c10::cuda::getStreamFromPool(false, static_cast<c10::DeviceIndex>(index)));
  const auto current_stream = [index] {
    return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(index))
        .stream();
  };
  return {
      at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index)),
      make_cuda_kernels(
          {current_stream, [index] { return free_bytes(index); }, &pinned_words,
           [index] { return make_cuda_copy_stream(index); }, &capture_cuda_graph})};
}

int64_t peak_cuda_bytes(int index) {
  // StatType::AGGREGATE, whose namespace differs between versions.
  constexpr size_t kOfAllPools = 0;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(
      static_cast<c10::DeviceIndex>(index));
  return stats.reserved_bytes[kOfAllPools].peak;
}

}  // namespace tandem

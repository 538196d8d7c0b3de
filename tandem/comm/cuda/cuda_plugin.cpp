// Implementation of libtandem_cuda.so (cuda_library.h). It includes no other header of
// tandem.

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <torch/csrc/cuda/nccl.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <array>
#include <cstdlib>
#include <sstream>

#include "tandem/comm/cuda/cuda_library.h"

namespace {

using tandem::CudaDevice;
using tandem::CudaFacts;
using tandem::CudaVersions;

void check(cudaError_t result) {
  if (result != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(result));
  }
}

std::string joined(std::initializer_list<int64_t> numbers) {
  std::ostringstream text;
  for (const int64_t number : numbers) {
    text << (text.tellp() > 0 ? "." : "") << number;
  }
  return text.str();
}

// Converts a version of CUDA: 13020 is 13.2.
std::string version_text(int version) {
  return version == 0 ? "" : joined({version / 1000, version % 1000 / 10});
}

// Converts a version of cuDNN or NCCL: 91900 is 9.19.0, and 22809 is 2.28.9.
std::string long_version_text(int64_t version) {
  return version == 0 ? ""
                      : joined({version / 10000, version % 10000 / 100, version % 100});
}

// Returns NCCL's version in the form 22809. LibTorch packs its three parts into 64
// bits.
int64_t nccl_version() {
  const uint64_t version = torch::cuda::nccl::version();
  return static_cast<int64_t>(
      (version >> 32) * 10000 + ((version >> 16) & 0xFFFF) * 100 + (version & 0xFFFF));
}

CudaFacts find_devices() {
  CudaFacts facts;
  int count = 0;
  const cudaError_t failed = cudaGetDeviceCount(&count);
  if (failed != cudaSuccess || count == 0) {
    facts.why_none = failed == cudaSuccess ? "the driver reports no device"
                                           : cudaGetErrorString(failed);
    return facts;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, i));
    facts.devices.push_back(
        {properties.name, joined({properties.major, properties.minor}),
         static_cast<double>(properties.totalGlobalMem) / (1 << 30)});
  }
  return facts;
}

CudaVersions find_versions() {
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

at::Device use_device(int index) {
  check(cudaSetDevice(index));
  return {at::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

int64_t free_bytes(int index) {
  const c10::DeviceIndex before = c10::cuda::current_device();
  size_t free = 0;
  size_t total = 0;
  check(cudaSetDevice(index));
  const cudaError_t result = cudaMemGetInfo(&free, &total);
  check(cudaSetDevice(before));
  check(result);
  return static_cast<int64_t>(free);
}

int64_t peak_bytes(int index) {
  // Value of StatType::AGGREGATE, whose namespace differs between versions of LibTorch.
  constexpr size_t kOfAllPools = 0;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(
      static_cast<c10::DeviceIndex>(index));
  return stats.reserved_bytes[kOfAllPools].peak;
}

std::string bus_id(int index) {
  std::array<char, 32> id{};
  check(cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), index));
  return id.data();
}

c10::intrusive_ptr<c10d::Backend> make_nccl(
    c10::intrusive_ptr<c10d::Store> store, int rank, int size,
    std::chrono::milliseconds timeout) {
  // ProcessGroupNCCL::Options contains an ncclConfig_t, whose size depends on NCCL.
  TORCH_CHECK(
      nccl_version() == NCCL_VERSION_CODE, "libtandem_cuda.so was built for NCCL ",
      long_version_text(NCCL_VERSION_CODE), ", and LibTorch loaded ",
      long_version_text(nccl_version()), "; build tandem again with this LibTorch");
  // 2 means CleanUpOnly. With the default, LibTorch would end the process before the
  // error is written. The monitor of the watchdog's heartbeat would also end the
  // process, so it is disabled.
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", /*replace=*/0);
  setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*replace=*/0);
  // LibTorch 2.15 also has c10d::nccl2::ProcessGroupNCCL, PyTorch's new default.
  // Earlier versions do not have it.
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(
      std::move(store), rank, size, options);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const tandem::CudaLibrary*
tandem_cuda() {
  static const tandem::CudaLibrary library = {
      &find_devices, &find_versions, &use_device, &free_bytes,
      &peak_bytes,   &bus_id,        &make_nccl};
  return &library;
}

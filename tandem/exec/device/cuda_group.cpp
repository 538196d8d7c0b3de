#include "tandem/exec/device/cuda_group.h"

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/comm/backends/device.h"
#include "tandem/comm/nccl/cuda_streams.h"
#include "tandem/comm/nccl/nccl_choice.h"
#include "tandem/comm/nccl/nccl_communicator.h"

namespace tandem {

namespace {

// Numbers of devices are each process's own (CUDA_VISIBLE_DEVICES).
std::string name_of_device(int index) {
  std::array<char, 32> bus{};
  const cudaError_t failed =
      cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), index);
  if (failed != cudaSuccess) {
    throw Error(
        "[device] cuda:" + std::to_string(index) +
        " does not answer: " + cudaGetErrorString(failed));
  }
  return host_identity() + " " + bus.data();
}

NcclDevice nccl_device(std::shared_ptr<const NcclApi> nccl, at::Device device) {
  const auto index = device.index();
  const auto current_stream = [index] {
    return reinterpret_cast<StreamHandle>(
        c10::cuda::getCurrentCUDAStream(index).stream());
  };
  return {std::move(nccl), make_cuda_streams(index, current_stream), device};
}

}  // namespace

std::unique_ptr<Communicator> make_cuda_communicator(
    std::unique_ptr<Communicator> host, const std::shared_ptr<StoreClient>& store,
    const Placement& placement, const CommOptions& options) {
  if (host->size() == 1) {
    return make_device_communicator(std::move(host));
  }
  std::shared_ptr<const NcclApi> nccl;
  std::string missing = store == nullptr ? "no store to meet in" : "";
  try {
    nccl = load_nccl();
  } catch (const ConfigError& error) {
    missing = first_line(error);
  }
  const at::Device device = *placement.device;
  const std::string obstacle =
      nccl_obstacle(*host, name_of_device(device.index()), missing);
  if (obstacle.empty()) {
    NcclOptions nccl_options;
    nccl_options.timeout = options.timeout();
    const int rank = host->rank();
    const int size = host->size();
    return make_device_communicator(
        std::move(host), make_nccl_communicator(
                             nccl_device(std::move(nccl), device), store, "nccl", rank,
                             size, nccl_options));
  }
  if (options.backend == BackendKind::nccl) {
    throw ConfigError(
        "[comm] backend nccl is not possible: " + obstacle +
        "; start one rank for each GPU, or use --backend auto");
  }
  if (host->rank() == 0) {
    log_info("[comm] between GPUs through main memory, since " + obstacle);
  }
  return make_device_communicator(std::move(host));
}

}  // namespace tandem

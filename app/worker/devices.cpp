#include "app/worker/devices.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/comm/cuda/cuda_library.h"
#include "tandem/comm/cuda/nccl.h"
#include "tandem/train/device_limits.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

// Returns the reason why `auto` does not use the GPUs of this host; "" if it uses them.
std::string why_not(const RunConfig& config) {
  if (cuda_library_path().empty()) {
    return "this build computes on CPUs only";
  }
  const std::string none = load_cuda_library().find_devices().why_none;
  return none.empty() ? device_obstacle(config) : "there is no usable GPU: " + none;
}

bool uses_cpu(const RunConfig& config, int local_rank) {
  const DeviceChoice& choice = config.exec.device;
  if (choice.kind != DeviceChoice::Kind::automatic) {
    return choice.kind == DeviceChoice::Kind::cpu;
  }
  if (!host_has_gpu()) {
    return true;
  }
  const std::string reason = why_not(config);
  if (!reason.empty() && local_rank == 0) {
    log_info("[device] the ranks use the CPU: " + reason);
  }
  return !reason.empty();
}

}  // namespace

Placement find_placement(const RunConfig& config, int local_rank) {
  if (uses_cpu(config, local_rank)) {
    return {};
  }
  const CudaLibrary& cuda = load_cuda_library();
  const auto facts = cuda.find_devices();
  const DeviceChoice& choice = config.exec.device;
  const auto count = static_cast<int>(facts.devices.size());
  const int index = choice.index != DeviceChoice::kByLocalRank ? choice.index
                    : count == 0                               ? 0
                                                               : local_rank % count;
  Placement placement = cuda_placement(cuda, index, facts);
  const auto& device = facts.devices[static_cast<size_t>(index)];
  const std::string obstacle =
      precision_obstacle(config.exec.precision, device.capability);
  if (!obstacle.empty()) {
    throw ConfigError(
        fmt::format("[exec] cuda:{}, {}: {}", index, device.name, obstacle));
  }
  log_info(fmt::format(
      "[device] local rank {} on cuda:{}, {}, {:.0f} GiB", local_rank, index,
      device.name, device.memory_gib));
  return placement;
}

std::unique_ptr<Communicator> make_group(
    JoinedRun& run, const RunConfig& config, const Placement& placement) {
  return placement.device ? make_cuda_communicator(
                                load_cuda_library(), std::move(run.comm), run.store,
                                placement, config.comm)
                          : std::move(run.comm);
}

std::string devices_json() {
  const CudaLibrary& cuda = load_cuda_library();
  const auto versions = cuda.find_versions();
  const auto facts = cuda.find_devices();
  ordered_json json;
  json["cuda_driver"] = versions.driver;
  json["cuda_runtime"] = versions.runtime;
  json["cudnn"] = versions.cudnn;
  json["nccl"] = versions.nccl;
  json["gpus"] = ordered_json::array();
  for (const auto& device : facts.devices) {
    json["gpus"].push_back(
        {{"name", device.name},
         {"compute_capability", device.capability},
         {"memory_gib", device.memory_gib}});
  }
  if (!facts.why_none.empty()) {
    json["no_gpu"] = facts.why_none;
  }
  return json.dump(2) + "\n";
}

}  // namespace tandem::app

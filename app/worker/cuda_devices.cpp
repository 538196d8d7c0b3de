#include "tandem/exec/device/cuda_devices.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "app/worker/devices.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/exec/device/cuda_group.h"
#include "tandem/train/device_obstacle.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

// Why `auto` leaves the GPUs out; "" where it does not.
std::string why_not(const RunConfig& config, const CudaFacts& facts) {
  if (!facts.why_none.empty()) {
    return "there is no GPU to use: " + facts.why_none;
  }
  return device_obstacle(config);
}

}  // namespace

Placement find_placement(const RunConfig& config, int local_rank) {
  const DeviceChoice& choice = config.exec.device;
  if (choice.kind == DeviceChoice::Kind::cpu) {
    return {};
  }
  const auto facts = find_cuda_devices();
  if (choice.kind == DeviceChoice::Kind::automatic) {
    const std::string reason = why_not(config, facts);
    if (!reason.empty()) {
      if (local_rank == 0) {
        log_info("[device] on the CPU, since " + reason);
      }
      return {};
    }
  }
  const auto count = static_cast<int>(facts.devices.size());
  const int index = choice.index != DeviceChoice::kByLocalRank ? choice.index
                    : count == 0                               ? 0
                                                               : local_rank % count;
  Placement placement = cuda_placement(index, facts);
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

std::function<int64_t()> count_device_bytes(const Placement& placement) {
  if (!placement.device) {
    return {};
  }
  return [index = placement.device->index()] { return peak_cuda_bytes(index); };
}

std::unique_ptr<Communicator> make_group(
    JoinedRun& run, const RunConfig& config, const Placement& placement) {
  return placement.device ? make_cuda_communicator(
                                std::move(run.comm), run.store, placement, config.comm)
                          : std::move(run.comm);
}

std::string devices_json() {
  const auto facts = find_cuda_devices();
  ordered_json json;
  const auto versions = find_cuda_versions();
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

// tandem-worker-cuda with devices in main memory, for tests of the whole program.

#include <fmt/core.h>

#include <cstdlib>

#include "app/worker/devices.h"
#include "tandem/base/error.h"
#include "tandem/comm/backends/device.h"
#include "tests/device/far_device.h"

namespace tandem::app {

namespace {

// What a test says of the devices; as it is without the variable.
void read_variable(const char* name, std::atomic<int64_t>& value) {
  if (const char* text = std::getenv(name)) {
    value = std::atoll(text);
  }
}

}  // namespace

Placement find_placement(const RunConfig& config, int local_rank) {
  read_variable("FAR_CAPACITY_BYTES", far_capacity_bytes);
  read_variable("FAR_WAIT_MS", far_wait_ms);
  const DeviceChoice& choice = config.exec.device;
  if (choice.kind != DeviceChoice::Kind::cuda) {
    return {};
  }
  if (choice.index >= kFarDevices) {
    throw ConfigError(
        fmt::format("[device] there is no {}; choose another", choice.text()));
  }
  return far_placement(
      choice.index == DeviceChoice::kByLocalRank ? local_rank % kFarDevices
                                                 : choice.index);
}

std::function<int64_t()> count_device_bytes(const Placement& placement) {
  if (!placement.device) {
    return {};
  }
  return [index = placement.device->index()] { return far_peak_bytes(index); };
}

std::unique_ptr<Communicator> make_group(
    JoinedRun& run, const RunConfig&, const Placement& placement) {
  return placement.device ? make_device_communicator(std::move(run.comm))
                          : std::move(run.comm);
}

std::string devices_json() {
  return "";
}

}  // namespace tandem::app

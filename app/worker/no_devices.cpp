#include "app/worker/devices.h"
#include "tandem/base/error.h"

namespace tandem::app {

Placement find_placement(const RunConfig& config, int) {
  if (config.exec.device.kind == DeviceChoice::Kind::cuda) {
    throw ConfigError(
        "[device] tandem-worker computes on the CPU only; start the run with tandem, "
        "which starts tandem-worker-cuda for --device cuda");
  }
  return {};
}

std::function<int64_t()> count_device_bytes(const Placement&) {
  return {};
}

std::unique_ptr<Communicator> make_group(
    JoinedRun& run, const RunConfig&, const Placement&) {
  return std::move(run.comm);
}

std::string devices_json() {
  return "";
}

}  // namespace tandem::app

#include "app/command.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/process.h"

namespace tandem::app {

namespace {

struct Places {
  std::string built;
  std::string installed;

  // "" where it is in neither.
  std::string found() const {
    return file_exists(built) ? built : file_exists(installed) ? installed : "";
  }
};

Places places_of(const std::string& worker) {
  const std::string own = executable_path();
  const std::string folder = own.substr(0, own.rfind('/'));
  const std::string prefix = folder.substr(0, folder.rfind('/'));
  return {folder + "/" + worker, prefix + "/libexec/tandem/" + worker};
}

// Of NVIDIA's driver, and of the one in Windows that WSL has instead. Asking CUDA would
// take longer than a short run.
bool host_has_gpu() {
  return file_exists("/dev/nvidiactl") || file_exists("/dev/dxg");
}

}  // namespace

std::string cuda_worker_path() {
  return places_of("tandem-worker-cuda").found();
}

std::string worker_path(const DeviceChoice& device) {
  using Kind = DeviceChoice::Kind;
  if (device.kind != Kind::cpu) {
    const std::string cuda = cuda_worker_path();
    if (cuda.empty() && device.kind == Kind::cuda) {
      throw ConfigError(
          "[device] --device " + device.text() +
          " needs tandem-worker-cuda, and this build computes on CPUs only; build with "
          "nvcc and -DTANDEM_TORCH_PYTHON=PYTHON, one whose torch has CUDA, or use "
          "--device cpu");
    }
    if (!cuda.empty() && (device.kind == Kind::cuda || host_has_gpu())) {
      return cuda;
    }
  }
  const auto places = places_of("tandem-worker");
  const std::string found = places.found();
  if (found.empty()) {
    throw DataError(
        "[app] '" + places.built + "' is missing, and so is '" + places.installed +
        "'; build or install tandem again");
  }
  return found;
}

}  // namespace tandem::app

#include "app/command.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem::app {

std::string worker_path(const DeviceChoice& device) {
  if (device.kind == DeviceChoice::Kind::cuda && cuda_library_path().empty()) {
    throw ConfigError(
        "[device] device is " + device.text() +
        ", but this build computes on CPUs only; build with "
        "-DTANDEM_TORCH_PYTHON=PYTHON, whose torch has CUDA, or use --device cpu");
  }
  const std::string path = find_installed("tandem-worker");
  if (path.empty()) {
    throw DataError(
        "[app] tandem-worker is missing in the folder of tandem and in "
        "../libexec/tandem; build or install tandem again");
  }
  return path;
}

std::vector<std::string> worker_command(
    const Arguments& command, const Arguments& arguments, const DeviceChoice& device) {
  std::vector<std::string> words = {worker_path(device)};
  words.insert(words.end(), command.begin(), command.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace tandem::app

#include <fmt/core.h>

#include "app/command.h"
#include "app/worker/devices.h"
#include "tandem/checkpoint/run_directory.h"

namespace tandem::app {

int work_doctor(const Arguments&) {
  const std::string devices = devices_json();
  fmt::print("{}", devices.empty() ? environment_json() : devices);
  return 0;
}

}  // namespace tandem::app

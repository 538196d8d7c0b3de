#include <fmt/core.h>

#include "app/command.h"
#include "tandem/checkpoint/run_directory.h"

namespace tandem::app {

int work_doctor(const Arguments&) {
  fmt::print("{}", environment_json());
  return 0;
}

}  // namespace tandem::app

#include "tandem/base/host.h"

#include <unistd.h>

#include <fstream>

namespace tandem {

std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char processes[64] = {};
  if (readlink("/proc/self/ns/pid", processes, sizeof(processes) - 1) < 0) {
    processes[0] = '\0';
  }
  return boot + "/" + processes;
}

}  // namespace tandem

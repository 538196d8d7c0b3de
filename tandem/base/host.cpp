#include "tandem/base/host.h"

#include <unistd.h>

#include <fstream>

namespace tandem {

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string host_identity() {
  std::string identity;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), identity);
  for (const char* space : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
    char number[64] = {};
    if (readlink(space, number, sizeof(number) - 1) > 0) {
      identity += std::string("/") + number;
    }
  }
  return identity;
}

}  // namespace tandem

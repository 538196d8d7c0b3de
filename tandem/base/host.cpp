#include "tandem/base/host.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"

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

std::string cpu_field(const std::string& name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) == 0) {
      return line.substr(std::min(line.size(), line.find(':') + 2));
    }
  }
  return "";
}

int count_gpus() {
  if (const auto visible = get_env("CUDA_VISIBLE_DEVICES")) {
    return static_cast<int>(split(*visible, ',').size());
  }
  int count = 0;
  for (const auto& name : list_directory("/dev")) {
    const bool numbered = name.find_first_not_of("0123456789", 6) == std::string::npos;
    count += name.size() > 6 && name.rfind("nvidia", 0) == 0 && numbered ? 1 : 0;
  }
  return count;
}

bool host_has_gpu() {
  // Device files of NVIDIA's driver, and of the Windows driver that WSL uses.
  return file_exists("/dev/nvidiactl") || file_exists("/dev/dxg");
}

}  // namespace tandem

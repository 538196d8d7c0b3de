#include "tandem/base/process_state.h"

#include <fstream>
#include <string>

namespace tandem {

bool is_stopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  // "pid (name) state": the name may hold anything.
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text.compare(name_end + 2, 1, "T") == 0;
}

}  // namespace tandem

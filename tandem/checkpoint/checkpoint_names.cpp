#include "tandem/checkpoint/checkpoint_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/files.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr const char* kPrefix = "step-";

// Returns the step in a checkpoint's name, -1 for any other name.
int64_t step_of(const std::string& name) {
  const std::string digits = name.substr(std::min(name.size(), std::strlen(kPrefix)));
  const bool is_checkpoint =
      name.rfind(kPrefix, 0) == 0 &&
      digits.find_first_not_of("0123456789") == std::string::npos;
  return is_checkpoint ? parse_number<int64_t>(digits).value_or(-1) : -1;
}

}  // namespace

std::string checkpoint_path(const std::string& directory, int64_t step) {
  return directory + fmt::format("/{}{:08}", kPrefix, step);
}

std::map<int64_t, std::string> checkpoints_in(const std::string& directory) {
  std::map<int64_t, std::string> found;
  if (file_exists(directory)) {
    for (const auto& name : list_directory(directory)) {
      if (step_of(name) >= 0) {
        found[step_of(name)] = directory + "/" + name;
      }
    }
  }
  return found;
}

bool is_checkpoint_name(const std::string& name) {
  return step_of(name) >= 0;
}

std::string newest_checkpoint(const std::string& directory) {
  const auto all = checkpoints_in(directory);
  return all.empty() ? "" : all.rbegin()->second;
}

}  // namespace tandem

#include "tandem/data/part_files.h"

#include "tandem/base/files.h"
#include "tandem/base/text.h"

namespace tandem {

bool has_part_files(const std::string& path, const std::string& ending) {
  return ends_with(path, ending) || file_exists(path + "/train" + ending);
}

PartFiles part_files(const std::string& path, const std::string& ending) {
  if (ends_with(path, ending)) {
    return {path, ""};
  }
  const std::string test = path + "/test" + ending;
  return {path + "/train" + ending, file_exists(test) ? test : ""};
}

}  // namespace tandem

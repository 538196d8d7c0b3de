#include "tandem/graph/pt2_errors.h"

#include "tandem/base/error.h"

namespace tandem {

void fail_pt2(const std::string& path, const std::string& what) {
  throw DataError(
      "[model] '" + path + "' " + what +
      "; export the model again with torch.export.save");
}

void refuse_pt2(const std::string& path, const std::string& what) {
  throw ConfigError("[model] '" + path + "' " + what);
}

}  // namespace tandem

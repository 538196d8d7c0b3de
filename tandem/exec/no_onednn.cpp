#include "tandem/base/error.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {

std::unique_ptr<StageExecutor> make_onednn_executor(
    Model&, ModelArenas&, const StageOptions&) {
  throw ConfigError(
      "[exec] executor onednn is not in this build, whose LibTorch is not Debian's; "
      "build with Debian's libtorch-dev, or use --executor eager");
}

std::string onednn_obstacle(const Model&, const ModelArenas&, const StageOptions&) {
  return "it is not in this build, whose LibTorch is not Debian's";
}

}  // namespace tandem

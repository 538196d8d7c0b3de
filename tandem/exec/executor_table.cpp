#include "tandem/base/error.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {

const std::vector<ExecutorEntry>& executor_table() {
  // "auto" tries the rows from the top.
  static const std::vector<ExecutorEntry> table = {
      {"eager", "LibTorch's operators and autograd; any model", &make_eager_executor},
      {"onednn", "compiled into oneDNN primitives; layered models in fp32",
       &make_onednn_executor},
  };
  return table;
}

std::unique_ptr<StageExecutor> make_executor(
    const std::string& name, Model& model, ModelArenas& arenas,
    const StageOptions& options) {
  std::vector<std::string> names = {"auto"};
  for (const auto& entry : executor_table()) {
    if (name == entry.name || name == "auto") {
      return entry.make(model, arenas, options);
    }
    names.emplace_back(entry.name);
  }
  throw ConfigError(
      "[exec] unknown executor '" + name + "'" + did_you_mean(name, names) +
      "; there are " + join(names));
}

}  // namespace tandem

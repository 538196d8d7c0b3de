#include "tandem/base/error.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {

const std::vector<ExecutorEntry>& executor_table() {
  static const std::vector<ExecutorEntry> table = {
      {"onednn", "compiled: oneDNN and kernels of our own; layered models, fp32, bf16",
       &make_onednn_executor, &onednn_obstacle},
      {"eager", "LibTorch's operators and autograd; any model", &make_eager_executor,
       nullptr},
  };
  return table;
}

std::unique_ptr<StageExecutor> make_executor(
    const std::string& name, Model& model, ModelArenas& arenas,
    const StageOptions& options, std::string* why_not) {
  std::vector<std::string> names = {"auto"};
  for (const auto& entry : executor_table()) {
    if (name == "auto" && entry.obstacle != nullptr) {
      const std::string reason = entry.obstacle(model, arenas, options);
      if (!reason.empty()) {
        if (why_not != nullptr) {
          *why_not = std::string(entry.name) + " does not run this model: " + reason;
        }
        continue;
      }
    }
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

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {

namespace {

// The first row that can run the model; eager can run any.
const ExecutorEntry& fastest_that_can(
    const Model& model, const ModelArenas& arenas, const StageOptions& options) {
  for (const auto& entry : executor_table()) {
    const std::string reason =
        entry.obstacle == nullptr ? "" : entry.obstacle(model, arenas, options);
    if (reason.empty()) {
      return entry;
    }
    log_info(
        "[exec] executor " + std::string(entry.name) +
        " does not run this model: " + reason);
  }
  TANDEM_CHECK(false, "no executor runs any model");
  return executor_table().back();
}

}  // namespace

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
    const StageOptions& options) {
  if (name == "auto") {
    return fastest_that_can(model, arenas, options).make(model, arenas, options);
  }
  std::vector<std::string> names = {"auto"};
  for (const auto& entry : executor_table()) {
    if (name == entry.name) {
      return entry.make(model, arenas, options);
    }
    names.emplace_back(entry.name);
  }
  throw ConfigError(
      "[exec] unknown executor '" + name + "'" + did_you_mean(name, names) +
      "; there are " + join(names));
}

}  // namespace tandem

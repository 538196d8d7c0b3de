#include "tandem/base/error.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {

const std::vector<ExecutorEntry>& executor_table() {
  static const std::vector<ExecutorEntry> table = {
      {ExecutorKind::compiled, &make_compiled_executor, &compiled_obstacle},
      {ExecutorKind::eager, &make_eager_executor, nullptr},
  };
  return table;
}

std::unique_ptr<StageExecutor> make_executor(
    ExecutorKind kind, Model& model, ModelArenas& arenas, const StageOptions& options,
    std::string* why_not) {
  for (const auto& entry : executor_table()) {
    if (entry.kind == kind) {
      return entry.make(model, arenas, options);
    }
    if (kind != ExecutorKind::automatic) {
      continue;
    }
    const std::string reason =
        entry.obstacle == nullptr ? "" : entry.obstacle(model, arenas, options);
    if (reason.empty()) {
      return entry.make(model, arenas, options);
    }
    // On a device `eager` is the only one, so there is nothing to report.
    if (why_not != nullptr && arenas.device().is_cpu()) {
      *why_not =
          std::string(name_of(entry.kind)) + " does not run this model: " + reason;
    }
  }
  throw InternalError("[exec] an executor without a row");
}

}  // namespace tandem

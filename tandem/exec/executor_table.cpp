#include "tandem/base/error.h"
#include "tandem/core/device/device_kernels.h"
#include "tandem/exec/device_executors.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {

namespace {

// Null in main memory, and on a device whose kernels cannot.
const DeviceExecutors* executors_of(const ModelArenas& arenas) {
  return dynamic_cast<const DeviceExecutors*>(arenas.parameters().kernels().get());
}

std::string kernels_obstacle(
    const Model& model, const ModelArenas& arenas, const StageOptions& options) {
  const auto* executors = executors_of(arenas);
  return executors == nullptr ? "the device has no kernels for it"
                              : executors->obstacle(model, arenas, options);
}

std::unique_ptr<StageExecutor> make_kernels_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options) {
  const auto* executors = executors_of(arenas);
  if (executors == nullptr) {
    throw ConfigError(
        "[exec] executor cuda runs models on a GPU, and this one is on " +
        arenas.device().str() + "; use --device cuda, or --executor auto");
  }
  return executors->make_executor(model, arenas, options);
}

// What it runs steps with is what `automatic` takes there.
ExecutorKind inside_of_graph(const ModelArenas& arenas) {
  if (arenas.device().is_cpu()) {
    throw ConfigError(
        "[exec] executor cudagraph replays steps on a GPU, and this model is on cpu; "
        "use --device cuda, or --executor auto");
  }
  return ExecutorKind::automatic;
}

// Whether `automatic` looks at it, for a model in main memory or not.
bool is_for(const ExecutorEntry& entry, bool main_memory) {
  return entry.kind == ExecutorKind::eager ||
         (entry.kind == ExecutorKind::compiled) == main_memory;
}

}  // namespace

const std::vector<ExecutorEntry>& executor_table() {
  static const std::vector<ExecutorEntry> table = {
      {ExecutorKind::cuda, &make_kernels_executor, &kernels_obstacle},
      {ExecutorKind::compiled, &make_compiled_executor, &compiled_obstacle},
      {ExecutorKind::eager, &make_eager_executor, nullptr},
  };
  return table;
}

std::unique_ptr<StageExecutor> make_executor(
    ExecutorKind kind, Model& model, ModelArenas& arenas, const StageOptions& options,
    std::string* why_not) {
  if (kind == ExecutorKind::cudagraph) {
    kind = inside_of_graph(arenas);
  }
  for (const auto& entry : executor_table()) {
    if (entry.kind == kind) {
      return entry.make(model, arenas, options);
    }
    if (kind != ExecutorKind::automatic || !is_for(entry, arenas.device().is_cpu())) {
      continue;
    }
    const std::string reason =
        entry.obstacle == nullptr ? "" : entry.obstacle(model, arenas, options);
    if (reason.empty()) {
      return entry.make(model, arenas, options);
    }
    if (why_not != nullptr) {
      *why_not =
          std::string(name_of(entry.kind)) + " does not run this model: " + reason;
    }
  }
  throw InternalError("[exec] an executor without a row");
}

}  // namespace tandem

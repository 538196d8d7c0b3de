#include "tandem/base/error.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {

Numerics numerics_of(const ExecOptions& exec) {
  Numerics numerics;
  switch (exec.precision) {
    case Precision::fp64:
      numerics.storage = numerics.product = at::kDouble;
      break;
    case Precision::bf16:
      numerics.product = at::kBFloat16;
      break;
    case Precision::fp16:
      numerics.rounding =
          exec.opt_level == OptLevel::o1 ? Rounding::fp16_o1 : Rounding::fp16_o2;
      break;
    case Precision::tf32:
      numerics.tf32 = true;
      break;
    case Precision::fp32:
      break;
    case Precision::automatic:
      throw InternalError(
          "[exec] precision is automatic; call settle_precision() first");
  }
  return numerics;
}

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
    // On other devices, only `eager` exists, so no executor is skipped.
    if (why_not != nullptr && arenas.device().is_cpu()) {
      *why_not =
          std::string(name_of(entry.kind)) + " does not run this model: " + reason;
    }
  }
  throw InternalError("[exec] an executor without a row");
}

}  // namespace tandem

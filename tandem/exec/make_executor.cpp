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

std::unique_ptr<StageExecutor> make_executor(
    ExecutorKind kind, Model& model, ModelArenas& arenas, const StageOptions& options,
    std::string* why_not) {
  if (kind == ExecutorKind::eager) {
    return make_eager_executor(model, arenas, options);
  }
  const bool is_chosen = kind == ExecutorKind::compiled;
  const std::string obstacle =
      is_chosen ? "" : compiled_obstacle(model, arenas, options);
  if (obstacle.empty()) {
    return make_compiled_executor(model, arenas, options);
  }
  // On other devices, only `eager` exists, so no executor is skipped.
  if (why_not != nullptr && arenas.device().is_cpu()) {
    *why_not = "compiled does not run this model: " + obstacle;
  }
  return make_eager_executor(model, arenas, options);
}

}  // namespace tandem

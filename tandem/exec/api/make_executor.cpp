#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/exec/compiled/chain_executor.h"
#include "tandem/exec/compiled/onednn_library.h"
#include "tandem/exec/compiled/program/image_planner.h"
#include "tandem/exec/program/program_executor.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/graph/effects.h"

namespace tandem {

namespace {

// Reason against `compiled` for a model without a graph, if the user did not choose it.
constexpr const char* kMayDecide =
    "the operators of a model without a graph may depend on more than the sizes of its "
    "input; if they do not, set executor = \"compiled\" (--executor compiled)";

// Returns why the compiled executor cannot run any model with these tensors, or "".
std::string obstacle_in(const ModelArenas& arenas) {
  for (const auto& tensor : arenas.tensors()) {
    if (!tensor.is_contiguous()) {
      return "some parameters are not contiguous, as with --channels-last";
    }
  }
  if (!arenas.device().is_cpu()) {
    return "it computes in main memory, but the model is on " + arenas.device().str();
  }
  for (const auto& named : arenas.state()) {
    if (at::isFloatingType(named.tensor.scalar_type()) &&
        named.tensor.scalar_type() != at::kFloat) {
      return "it computes in float32, but " + named.name + " is " +
             c10::toString(named.tensor.scalar_type());
    }
  }
  return onednn_obstacle();
}

// Returns why the executor of chains cannot run a graph, or "".
std::string obstacle_for_chain(const Graph& graph, const StageOptions& options) {
  return options.recomputes ? "a chain keeps all values, which --recompute forgets"
                            : chain_obstacle(graph, options);
}

bool is_chain(const Model& model, const StageOptions& options) {
  return model.graph() != nullptr &&
         obstacle_for_chain(*model.graph(), options).empty();
}

// Returns why a network that is no chain cannot be recorded and repeated, or "".
std::string program_obstacle(const Model& model, const StageOptions& options) {
  const Graph* const graph = model.graph();
  if (options.numerics.product != at::kFloat ||
      options.numerics.rounding != Rounding::none) {
    return "in 16 bits it runs only chains of layers with kernels, but " +
           (graph == nullptr ? "the model is a function"
                             : obstacle_for_chain(*graph, options));
  }
  const Node* const node =
      graph == nullptr ? nullptr : find_change_of_parameter(*graph);
  return node == nullptr ? "" : node->name + " changes a parameter in the forward pass";
}

}  // namespace

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

std::string compiled_obstacle(
    const Model& model, const ModelArenas& arenas, const StageOptions& options) {
  if (options.loss.own) {
    return "the loss is custom";
  }
  if (options.gathers_parameters) {
    return "its kernels read parameters that --shard parameters gathers only for "
           "LibTorch's operators";
  }
  if (options.stacked_statistics) {
    return "it does not exchange batch norm's statistics between ranks, which "
           "--buffers sync needs";
  }
  const std::string obstacle = obstacle_in(arenas);
  return !obstacle.empty() || is_chain(model, options)
             ? obstacle
             : program_obstacle(model, options);
}

std::unique_ptr<StageExecutor> make_compiled_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options) {
  const std::string reason = compiled_obstacle(model, arenas, options);
  if (!reason.empty()) {
    throw ConfigError(
        "[exec] executor compiled cannot run this model: " + reason +
        "; use --executor eager");
  }
  if (is_chain(model, options)) {
    return make_chain_executor(model, arenas, options);
  }
  if (options.recomputes && chain_obstacle(*model.graph(), options).empty()) {
    log_info(
        "executor compiled: the chain of layers runs as recorded operators, because "
        "--recompute forgets values that a chain keeps");
  }
  return make_program_executor(model, arenas, options, &plan_image_kernels);
}

std::unique_ptr<StageExecutor> make_executor(
    ExecutorKind kind, Model& model, ModelArenas& arenas, const StageOptions& options,
    std::string* why_not) {
  if (kind == ExecutorKind::eager) {
    return make_eager_executor(model, arenas, options);
  }
  const bool is_chosen = kind == ExecutorKind::compiled;
  std::string obstacle = is_chosen ? "" : compiled_obstacle(model, arenas, options);
  if (!is_chosen && obstacle.empty() && model.graph() == nullptr) {
    obstacle = kMayDecide;
  }
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

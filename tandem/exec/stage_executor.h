#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "tandem/config/options/exec_options.h"
#include "tandem/core/arena.h"
#include "tandem/core/numerics.h"
#include "tandem/core/step_scalars.h"
#include "tandem/core/step_sums.h"
#include "tandem/core/trace.h"
#include "tandem/data/batch.h"
#include "tandem/model/model.h"

namespace tandem {

/// What holds for one step, whichever batch of it is at hand.
struct StepContext {
  // Optimizer steps since the run began, from 0.
  int64_t step = 0;
  int64_t epoch = 0;
  uint64_t seed = 0;
  bool training = true;
  // Learning rate of this step.
  double lr = 0;
  // Factor on the summed loss before backward (model/loss.h): share of the global
  // batch, so uneven batches and accumulation cost no extra pass. The strategy sets it.
  double loss_weight = 1;
  // A further factor, a GradScaler's.
  double loss_scale = 1;
  // Where to record what happens when; may be null.
  Trace* trace = nullptr;
};

/// The numbers of this step for an optimizer.
inline StepScalars scalars_of(const StepContext& context) {
  return {context.lr, 1, context.step + 1, false};
}

/// Told by an executor, during backward, that a parameter's gradient is final
/// for this micro-batch.
class GradientSink {
 public:
  virtual ~GradientSink() = default;

  /// `slot` is the parameter's place in the arena's layout. Comes from the
  /// thread that runs backward, once per parameter that the loss depends on.
  virtual void gradient_ready(size_t slot) = 0;
};

/// For micro-batches whose gradients only add up: nobody waits for them yet.
class NoSink : public GradientSink {
 public:
  void gradient_ready(size_t) override {}
};

/// What forward gives.
struct StageResult {
  // Activations for the next stage; of the last stage the model's output.
  at::Tensor output;
  // Empty on all stages but the last.
  StepSums sums;
};

/// When an executor reports gradients.
enum class Readiness {
  // During backward, each as soon as it is final.
  per_parameter,
  // All at the end of backward.
  at_end,
};

/// Computes a stage of a model: inputs to loss or activations, and back to
/// gradients, which it adds into the gradient arena. A whole model is the only
/// stage. Strategies do not know which executor they drive. Not thread-safe.
class StageExecutor {
 public:
  virtual ~StageExecutor() = default;

  /// `slot` says which micro-batch in flight this is; backward with the same
  /// slot uses what forward kept. Up to the number of slots may be in flight.
  virtual StageResult forward(
      int slot, const Batch& batch, const StepContext& context) = 0;

  /// `grad_output` is undefined on the last stage: the loss is the end. Returns
  /// the gradient of the stage's input, undefined on the first stage.
  virtual at::Tensor backward(
      int slot, const at::Tensor& grad_output, const StepContext& context,
      GradientSink& sink) = 0;

  /// The optimizer or a broadcast changed these parameters: packed or converted
  /// copies of them are stale.
  virtual void parameters_changed(const ArenaRange& range) = 0;

  /// A step begins: the gradient arena counts as zero. Where the next backward
  /// overwrites it, nothing is written now; so a backward must follow before anybody
  /// reads it.
  virtual void zero_gradients() = 0;

  virtual Readiness readiness() const = 0;

  /// Bytes of inputs and layer outputs that wait for their backward, of all slots in
  /// flight. 0 where the executor does not know.
  virtual int64_t kept_bytes() const {
    return 0;
  }

  /// What `automatic` chose.
  virtual ExecutorKind kind() const = 0;
};

/// `exec.precision` is not `automatic`.
[[nodiscard]] Numerics numerics_of(const ExecOptions& exec);

/// Which part of a model a stage is.
struct StageOptions {
  Loss loss;
  bool first = true;
  bool last = true;
  // Number of classes in the data. The last stage compares it with the outputs of its
  // first forward pass; 0: no comparison.
  int64_t num_classes = 0;
  Numerics numerics = {};
  // Batch norm takes its statistics from the samples of all ranks.
  bool stacked_statistics = false;
};

/// Runs a model through autograd, any model. The arenas are the model's own and
/// outlive the executor, as does the model.
///
/// fp16 is for layered models: throws ConfigError for others. The first
/// forward() throws it for outputs that do not fit StageOptions::num_classes.
[[nodiscard]] std::unique_ptr<StageExecutor> make_eager_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options);

/// Compiles a layered model into oneDNN primitives and kernels of our own with planned
/// memory: layouts propagated, ReLUs fused, no autograd graph. In float32, or bfloat16
/// with AVX-512. Throws ConfigError for a model that it cannot compile.
[[nodiscard]] std::unique_ptr<StageExecutor> make_compiled_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options);

/// Why it cannot, in a few words; "" when it can.
[[nodiscard]] std::string compiled_obstacle(
    const Model& model, const ModelArenas& arenas, const StageOptions& options);

/// One row per executor.
struct ExecutorEntry {
  ExecutorKind kind;
  std::unique_ptr<StageExecutor> (*make)(Model&, ModelArenas&, const StageOptions&);
  // Null: it runs every model.
  std::string (*obstacle)(const Model&, const ModelArenas&, const StageOptions&);
};

/// The fastest first.
const std::vector<ExecutorEntry>& executor_table();

/// `automatic` takes the fastest that can run the model. Where it passes over one,
/// `why_not`, if not null, becomes the reason.
///
/// Throws ConfigError for one that cannot run the model.
[[nodiscard]] std::unique_ptr<StageExecutor> make_executor(
    ExecutorKind kind, Model& model, ModelArenas& arenas, const StageOptions& options,
    std::string* why_not = nullptr);

}  // namespace tandem

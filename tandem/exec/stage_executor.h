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

/// Settings of one optimizer step, for all its batches.
struct StepContext {
  // Optimizer steps since the run began, from 0.
  int64_t step = 0;
  int64_t epoch = 0;
  uint64_t seed = 0;
  bool training = true;
  // Learning rate of this step.
  double lr = 0;
  // Factor of the summed loss before backward (loss_weight() in model/loss.h), so that
  // uneven batches and accumulation need no extra pass. The strategy sets it.
  double loss_weight = 1;
  // Another factor of the loss, from GradScaler.
  double loss_scale = 1;
  // Records the time of events; may be null.
  Trace* trace = nullptr;
};

/// Returns the numbers of this step that an optimizer needs.
inline StepScalars scalars_of(const StepContext& context) {
  return {context.lr, 1, context.step + 1, false};
}

/// Receives the gradients of a backward pass as soon as they are final.
class GradientSink {
 public:
  virtual ~GradientSink() = default;

  /// The executor calls this when a parameter's gradient is final for this micro-batch:
  /// once for each parameter that the loss depends on, from the thread that runs
  /// backward. `slot`: the parameter's place in the arena's layout.
  virtual void gradient_ready(size_t slot) = 0;
};

/// Ignores gradients, for micro-batches that only accumulate.
class NoSink : public GradientSink {
 public:
  void gradient_ready(size_t) override {}
};

/// Result of a forward pass.
struct StageResult {
  // Activations for the next stage. On the last stage the model's output.
  at::Tensor output;
  // Loss and counts; empty except on the last stage.
  StepSums sums;
};

/// Time at which an executor calls GradientSink::gradient_ready().
enum class Readiness {
  // During backward, as soon as a gradient is final.
  per_parameter,
  // At the end of backward, for all gradients.
  at_end,
};

/// Computes a stage of a model: forward from inputs to loss or activations, backward
/// to gradients, which it adds to the gradient arena. Without a pipeline the whole
/// model is one stage. Strategies do not depend on the kind of executor. Not
/// thread-safe.
class StageExecutor {
 public:
  virtual ~StageExecutor() = default;

  /// Computes the output of a batch, and on the last stage its loss. In training it
  /// keeps what backward() with the same `slot` needs. `slot`: number of a micro-batch
  /// in flight.
  virtual StageResult forward(
      int slot, const Batch& batch, const StepContext& context) = 0;

  /// Adds the gradients of the batch in `slot` to the arena. `grad_output` is undefined
  /// on the last stage, which starts from its loss. Returns the gradient of the stage's
  /// input, undefined on the first stage.
  virtual at::Tensor backward(
      int slot, const at::Tensor& grad_output, const StepContext& context,
      GradientSink& sink) = 0;

  /// Marks packed or converted copies of these parameters as stale. To be called after
  /// an optimizer update or a broadcast.
  virtual void parameters_changed(const ArenaRange& range) = 0;

  /// Begins a step, in which gradients count as zero. If the next backward overwrites
  /// the gradient arena, this writes nothing; so run a backward before you read it.
  virtual void zero_gradients() = 0;

  /// Returns when this executor reports gradients.
  virtual Readiness readiness() const = 0;

  /// Returns the bytes of inputs and layer outputs that are kept for backward, over all
  /// slots in flight; 0 if unknown.
  virtual int64_t kept_bytes() const {
    return 0;
  }

  /// Returns the kind of this executor, never `automatic`.
  virtual ExecutorKind kind() const = 0;
};

/// Returns the number formats for `exec.precision`, which must not be `automatic`.
[[nodiscard]] Numerics numerics_of(const ExecOptions& exec);

/// Options of an executor.
struct StageOptions {
  Loss loss;
  // Position of the stage in the model.
  bool first = true;
  bool last = true;
  // Number of classes in the data. The last stage compares it with the outputs of its
  // first forward pass; 0: no comparison.
  int64_t num_classes = 0;
  Numerics numerics = {};
  // Batch norm uses the statistics of all ranks' samples.
  bool stacked_statistics = false;
};

/// Returns an executor that runs any model through autograd. `arenas` are the model's;
/// both must outlive the executor.
///
/// Throws ConfigError if the rounding is fp16 and the model has no layers(). The first
/// forward() throws it if the outputs do not fit StageOptions::num_classes.
[[nodiscard]] std::unique_ptr<StageExecutor> make_eager_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options);

/// Returns an executor that compiles a layered model into oneDNN primitives and custom
/// kernels. Memory is planned once, layouts are propagated, ReLUs are fused, and there
/// is no autograd graph. It computes in float32, or in bfloat16 with AVX-512. `arenas`
/// are the model's; both must outlive the executor. Throws ConfigError if
/// compiled_obstacle() returns a reason.
[[nodiscard]] std::unique_ptr<StageExecutor> make_compiled_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options);

/// Returns the reason why make_compiled_executor() cannot run the model, or "".
[[nodiscard]] std::string compiled_obstacle(
    const Model& model, const ModelArenas& arenas, const StageOptions& options);

/// Row of executor_table().
struct ExecutorEntry {
  ExecutorKind kind;
  std::unique_ptr<StageExecutor> (*make)(Model&, ModelArenas&, const StageOptions&);
  // Returns the reason why it cannot run a model, or "". Null: it runs every model.
  std::string (*obstacle)(const Model&, const ModelArenas&, const StageOptions&);
};

/// Returns the executors, the fastest first.
const std::vector<ExecutorEntry>& executor_table();

/// Returns an executor of this kind. `automatic` chooses the fastest that can run the
/// model. If it skips one, it writes the reason to `why_not`, unless that is null.
///
/// Throws ConfigError if the executor cannot run the model.
[[nodiscard]] std::unique_ptr<StageExecutor> make_executor(
    ExecutorKind kind, Model& model, ModelArenas& arenas, const StageOptions& options,
    std::string* why_not = nullptr);

}  // namespace tandem

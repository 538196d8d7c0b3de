#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "tandem/config/options/exec_options.h"
#include "tandem/core/arena.h"
#include "tandem/core/dropout.h"
#include "tandem/core/numerics.h"
#include "tandem/core/step_scalars.h"
#include "tandem/core/step_sums.h"
#include "tandem/core/trace.h"
#include "tandem/data/batch.h"
#include "tandem/model/model.h"

namespace tandem {

/// Settings of one optimizer step, shared by its micro-batches.
struct StepContext {
  // Index of the optimizer step in the run, from 0.
  int64_t step = 0;
  int64_t epoch = 0;
  uint64_t seed = 0;
  bool training = true;
  // Learning rate of this step.
  double lr = 0;
  // Factor on the summed loss before backward (loss_weight() in model/loss.h), set by
  // the strategy. With this factor, gradients need no scaling after backward, even if
  // batches have different sizes or gradients are accumulated.
  double loss_weight = 1;
  // Additional factor on the loss: the scale of the GradScaler.
  double loss_scale = 1;
  // Trace to which events are added; may be null.
  Trace* trace = nullptr;
};

/// Returns the numbers of a step that the optimizer uses, such as the learning rate.
inline StepScalars scalars_of(const StepContext& context) {
  return {context.lr, 1, context.step + 1};
}

/// Returns the values that determine the random numbers of a batch.
inline SampleContext samples_of(const Batch& batch, const StepContext& context) {
  return {
      context.seed, context.epoch, batch.first_position, batch.position_stride,
      batch.step_position};
}

/// Interface through which an executor reports final gradients during a backward pass.
class GradientSink {
 public:
  virtual ~GradientSink() = default;

  /// Called when a parameter's gradient is final for this micro-batch: once for each
  /// parameter on which the loss depends, in the thread that runs backward. `slot` is
  /// the index of the parameter's slot in the arenas' layout.
  virtual void gradient_ready(size_t slot) = 0;
};

/// A sink that ignores all calls. It is used for micro-batches whose gradients are only
/// accumulated.
class NoSink : public GradientSink {
 public:
  void gradient_ready(size_t) override {}
};

/// Result of a forward pass.
struct StageResult {
  // Activations for the next stage. On the last stage, the model's output.
  at::Tensor output;
  // Sums of the loss and of its metric, and number of samples. Empty except on the last
  // stage.
  StepSums sums;
};

/// Number of recordings, and their duration with planning, in seconds. Each mode and
/// batch size has its own recording.
struct RecordingCost {
  int64_t steps = 0;
  double seconds = 0;
};

/// Computes one stage of a model. forward() computes the stage's activations, or the
/// loss on the last stage. backward() adds the gradients of trainable parameters to the
/// gradient arena. Call backward() only if the stage has trainable parameters or if the
/// gradient of its input is needed. Without a pipeline, the whole model is one stage.
/// Strategies do not depend on the kind of executor. Not thread-safe.
class StageExecutor {
 public:
  virtual ~StageExecutor() = default;

  /// Computes the output of a batch, and on the last stage the loss. In training, keeps
  /// the values that backward() with the same `slot` needs. `slot` is the number of a
  /// micro-batch in flight; it is unrelated to the slots of an arena.
  virtual StageResult forward(
      int slot, const Batch& batch, const StepContext& context) = 0;

  /// Adds the gradients of the batch in `slot` to the arena. `grad_output` is the
  /// gradient of the stage's output. It is undefined on the last stage, which starts
  /// from the loss. Returns the gradient of the stage's input; undefined unless
  /// StageOptions::wants_input_gradient().
  virtual at::Tensor backward(
      int slot, const at::Tensor& grad_output, const StepContext& context,
      GradientSink& sink) = 0;

  /// Marks the executor's packed or converted copies of the parameters in `range` as
  /// stale. Call this function after an optimizer update or a broadcast.
  virtual void parameters_changed(const ArenaRange& range) = 0;

  /// Makes the next backward() start from zero gradients. Some executors do not clear
  /// the gradient arena in this call; their next backward() overwrites it. So do not
  /// read the arena before that backward().
  virtual void zero_gradients() = 0;

  /// Returns the number of bytes of the inputs and layer outputs that are kept for
  /// backward, over all slots in flight; 0 if unknown.
  virtual int64_t kept_bytes() const {
    return 0;
  }

  /// Returns the kind of this executor, never `automatic`.
  virtual ExecutorKind kind() const = 0;

  /// Returns a table of the calls and kernels of a training step, one line each, in
  /// order; "" if none has been recorded. With StageOptions::measure, it has their
  /// shares of the time.
  virtual std::string program_table() const {
    return "";
  }

  /// Returns the number and duration of recordings so far.
  virtual RecordingCost recording_cost() const {
    return {};
  }

  /// Returns whether the bits of the results depend on the number of threads, as those
  /// of LibTorch's kernels do.
  virtual bool depends_on_threads() const {
    return true;
  }
};

/// Returns the number formats for `exec.precision`, which must not be `automatic`.
[[nodiscard]] Numerics numerics_of(const ExecOptions& exec);

/// Options of an executor.
struct StageOptions {
  Loss loss;
  // True if this is the first, or the last, stage of the model.
  bool first = true;
  bool last = true;
  // Number of classes in the data; 0 if it is unknown, or if targets are numbers. In
  // its first forward pass, the last stage compares this number with the number of
  // outputs.
  int64_t num_classes = 0;
  Numerics numerics = {};
  // True if batch norm uses statistics over the samples of all ranks (SyncBatchNorm).
  bool stacked_statistics = false;
  // True if parameters are complete only while LibTorch's operators use them
  // (Sharding::parameters).
  bool gathers_parameters = false;
  // True if no earlier stage has trainable parameters.
  bool frozen_before = false;
  // True if Model::recompute() made backward compute values again.
  bool recomputes = false;
  // True if a recorded program measures the time of its calls and kernels.
  bool measure = false;

  /// Returns whether backward() computes the gradient of the stage's input.
  bool wants_input_gradient() const {
    return !first && !frozen_before;
  }
};

/// Returns an executor that runs any model through autograd. `arenas` contain the
/// tensors of `model`. Both objects must outlive the executor.
///
/// Throws ConfigError if `options.numerics.rounding` is fp16 and the model has no
/// graph(). The first forward() throws ConfigError if the outputs do not fit
/// StageOptions::num_classes.
[[nodiscard]] std::unique_ptr<StageExecutor> make_eager_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options);

/// Returns an executor that compiles a model for the CPU. It computes in float32, or in
/// 16 bits if the model is a chain of layers. A model without a graph() must decide
/// only by the sizes, the dtype and the mode, not for example by a counter.
///
/// A chain of layers with kernels runs by chain_executor.h in exec/compiled, unless
/// values are recomputed. For any other network, program_executor.h in exec/program
/// records the operators of a step, forward and backward, once for each batch size, and
/// repeats them with kernels for images. `arenas` contain the tensors of `model`. Both
/// objects must outlive the executor.
///
/// Throws ConfigError if compiled_obstacle() returns a reason.
[[nodiscard]] std::unique_ptr<StageExecutor> make_compiled_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options);

/// Returns the reason why the compiled executor cannot run the model; "" if it can.
[[nodiscard]] std::string compiled_obstacle(
    const Model& model, const ModelArenas& arenas, const StageOptions& options);

/// Returns an executor of this kind. `automatic` selects the fastest executor that can
/// run the model, and `eager` for a model without a graph(). If the model is on the CPU
/// and a faster executor cannot run it, writes the reason to `why_not`, unless
/// `why_not` is null.
///
/// Throws ConfigError if the executor cannot run the model.
[[nodiscard]] std::unique_ptr<StageExecutor> make_executor(
    ExecutorKind kind, Model& model, ModelArenas& arenas, const StageOptions& options,
    std::string* why_not = nullptr);

}  // namespace tandem

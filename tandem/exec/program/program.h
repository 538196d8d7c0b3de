#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/core/trace.h"
#include "tandem/exec/program/instruction.h"
#include "tandem/exec/program/recorded_step.h"

namespace tandem {

/// Adds the instructions of one recorded call, or of several calls that a kernel
/// computes together, to a program.
class CallPlanner {
 public:
  virtual ~CallPlanner() = default;

  /// Adds the instructions for the call with this index. Called for all calls, in
  /// order.
  virtual void plan(size_t call, std::vector<Instruction>& program) = 0;
  /// Adds instructions after which the tensor is in ProgramState::tensors.
  virtual void provide(RecordedId id, std::vector<Instruction>& program) = 0;
  /// Returns the memory of kernels that is kept for backward, in bytes.
  virtual int64_t kept_bytes() const {
    return 0;
  }
};

/// Returns a planner that repeats each call by LibTorch.
[[nodiscard]] std::unique_ptr<CallPlanner> plan_plain_calls(const RecordedStep& step);

/// A recorded step, prepared for repeated runs without autograd. Tensors are released
/// after the last instruction that needs them. An error names the layer. Not
/// thread-safe: a micro-batch in flight needs its own program.
class Program {
 public:
  /// `step` must outlive the program.
  Program(const RecordedStep& step, std::unique_ptr<CallPlanner> planner);

  /// Runs the forward pass. `inputs` are those of the step, in order; they must have
  /// the recorded sizes and be contiguous.
  void forward(
      const std::vector<at::Tensor>& inputs, const SampleContext& samples,
      int64_t parameters_version, Trace* trace);

  /// Runs the backward pass, from the gradient at which it starts. Calls `ready(slot)`
  /// for each parameter when its gradient is final.
  void backward(
      const at::Tensor& initial_gradient, const std::function<void(size_t)>& ready,
      Trace* trace);

  /// Returns the result of the step with this index; undefined for kNoTensor.
  at::Tensor result(size_t index) const;
  /// Returns a result that nothing else refers to. Call it once for each result, after
  /// the last pass.
  at::Tensor take_result(size_t index);

  /// Measures the time of each instruction from now on.
  void measure() {
    is_measured_ = true;
  }
  /// Returns a table of the instructions: pass, layer, name, size of the result, and
  /// their share of the measured time.
  [[nodiscard]] std::string table() const;

  /// Returns the size of the tensors that exist now, in bytes, without fixed tensors
  /// such as parameters.
  int64_t kept_bytes() const;

 private:
  struct Step {
    Instruction instruction;
    // Tensors that no later instruction needs.
    std::vector<RecordedId> last_used;
    // Slots of parameters whose gradient is final after the instruction.
    std::vector<size_t> ready;
    // Measured seconds of all runs.
    double seconds = 0;
  };

  void find_last_uses();
  const std::string& layer_of(const Instruction& instruction) const;
  void set(RecordedId id, const at::Tensor& tensor);
  void run(Step& step, const char* category);
  void run(
      size_t begin, size_t end, const std::function<void(size_t)>& ready, Trace* trace,
      const char* category);

  const RecordedStep& step_;
  std::unique_ptr<CallPlanner> planner_;
  std::vector<Step> steps_;
  size_t forward_steps_ = 0;
  ProgramState state_;
  bool is_measured_ = false;
};

}  // namespace tandem

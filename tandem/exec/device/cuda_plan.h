#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tandem/exec/device/cuda_ops.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {

/// What a stage's plans have in common.
struct CudaStage {
  // Without a log-softmax at the end, which the loss takes along.
  std::vector<BoundLayer> layers;
  StageOptions options;
  bool ends_with_log_softmax = false;
  // Of parameters and activations: float32 or float64.
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::Device(c10::kCPU);
  // The device's; outlived by the arenas.
  const DeviceKernels* kernels = nullptr;
};

/// A stage's layers planned for one size of batch, in training or evaluation. It has
/// memory of its own, so that several may be in flight, and all of it from its start:
/// a pass is nothing but kernels over the same addresses each time.
///
///   input -> ops[0] -> ops[1] -> ... -> output -> loss
///   grad_input <- ops[0] <- ops[1] <- ... <- grad_output <- loss
///
/// On the last stage forward computes the gradient of the loss too. Not thread-safe.
class CudaPlan {
 public:
  /// Throws ConfigError for a batch that the layers do not take.
  CudaPlan(
      const CudaStage& stage, const std::vector<int64_t>& input_sizes, bool training);

  /// Brings the batch to where kernels find it, and where the context has no record of
  /// it on the device, that too. Nothing else of a pass comes from main memory.
  void take(const Batch& batch, const StepContext& context);

  void forward(const StepContext& context, cuda::Stream stream);

  /// `grad_output`: as of StageExecutor::backward. `accumulate`: adds gradients to what
  /// is in the arena.
  void backward(
      const at::Tensor& grad_output, bool accumulate, const StepContext& context,
      GradientSink& sink, cuda::Stream stream);

  /// The stage's output, which the next forward overwrites.
  const at::Tensor& output() const {
    return output_;
  }
  /// Undefined on the first stage.
  const at::Tensor& grad_input() const {
    return grad_input_;
  }
  /// A copy; of the last stage.
  StepSums sums() const;

  /// The size of inputs and layers' outputs.
  int64_t kept_bytes() const {
    return kept_bytes_;
  }

 private:
  void plan_loss(const at::Tensor& result);
  void plan_backward();
  void plan_targets(const at::Tensor& targets);
  void compute_loss(const StepContext& context, cuda::Stream stream);
  template <typename T>
  void compute_loss_of(const float* scale, cuda::Stream stream);
  bool wants_input_grad(size_t index) const;
  CudaPass pass(cuda::Stream stream) const;
  BatchRecord* record_on_device() const;

  const CudaStage& stage_;
  bool training_;
  std::vector<BoundLayer> layers_;
  // One for each layer.
  std::vector<std::unique_ptr<CudaOp>> ops_;
  size_t first_with_gradient_;
  at::Tensor input_;
  // Of the last layer.
  at::Tensor result_;
  // The same, but behind a log-softmax.
  at::Tensor output_;
  at::Tensor grad_output_;
  at::Tensor grad_input_;
  at::Tensor targets_;
  // Of this batch, where the context has none.
  at::Tensor own_record_;
  // Of the batch in flight.
  at::Tensor record_;
  at::Tensor workspace_;
  at::Tensor counters_;
  int64_t kept_bytes_ = 0;
};

}  // namespace tandem

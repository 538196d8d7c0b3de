#include "tandem/exec/device/cuda_plan.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "tandem/base/error.h"
#include "tandem/core/device/upload.h"
#include "tandem/kernels/cuda/loss.h"

namespace tandem {

namespace {

constexpr int64_t kSumsAt = kBatchRecordWords - 3;

cuda::Products products_of(Precision precision, bool training) {
  if (precision == Precision::tf32) {
    return cuda::Products::tf32;
  }
  // Its evaluation is in float32.
  return precision == Precision::bf16 && training ? cuda::Products::bf16
                                                  : cuda::Products::full;
}

// A loss of classes behind a log-softmax, of what that takes: log-softmax changes
// nothing about its own result, nor about a softmax's.
LossKind without_log_softmax(LossKind kind) {
  return kind == LossKind::nll ? LossKind::cross_entropy : kind;
}

}  // namespace

CudaPlan::CudaPlan(
    const CudaStage& stage, const std::vector<int64_t>& input_sizes, bool training)
    : stage_(stage),
      training_(training),
      layers_(fuse_for_cuda(stage.layers, training)),
      first_with_gradient_(first_with_gradient(layers_, stage.options.first)) {
  const auto options = at::TensorOptions(stage.dtype).device(stage.device);
  own_record_ = at::empty({kBatchRecordWords}, options.dtype(at::kLong));
  input_ = at::empty(input_sizes, options);
  at::Tensor value = input_;
  kept_bytes_ = static_cast<int64_t>(value.nbytes());
  const auto products = products_of(stage.options.precision, training);
  for (const auto& layer : layers_) {
    ops_.push_back(make_cuda_op(layer, stage.dtype, products, training));
    const auto next = ops_.back()->plan_forward(value);
    if (!next.is_alias_of(value)) {
      kept_bytes_ += static_cast<int64_t>(next.nbytes());
    }
    value = next;
  }
  plan_loss(value);
  if (training) {
    plan_backward();
  }
  cuda::WorkspaceSize most;
  for (const auto& op : ops_) {
    most = cuda::larger(most, op->workspace());
  }
  workspace_ = at::empty({most.values}, options.dtype(at::kByte));
  counters_ = at::zeros({most.counters}, options.dtype(at::kInt));
}

void CudaPlan::plan_loss(const at::Tensor& result) {
  result_ = result;
  output_ = stage_.ends_with_log_softmax ? at::empty(result.sizes(), result.options())
                                         : result;
}

void CudaPlan::plan_backward() {
  grad_output_ = at::empty(result_.sizes(), result_.options());
  at::Tensor grad = grad_output_;
  for (size_t i = ops_.size(); i-- > first_with_gradient_;) {
    grad = ops_[i]->plan_backward(grad, wants_input_grad(i));
  }
  if (!stage_.options.first) {
    grad_input_ = grad;
  }
}

bool CudaPlan::wants_input_grad(size_t index) const {
  return !stage_.options.first || index > first_with_gradient_;
}

void CudaPlan::take(const Batch& batch, const StepContext& context) {
  record_ = context.record;
  if (!record_.defined()) {
    const BatchRecord record = record_of(batch, context);
    upload(&record, own_record_, stage_.kernels);
    record_ = own_record_;
  }
  input_.copy_(batch.inputs);
  if (stage_.options.last) {
    plan_targets(batch.targets);
    targets_.copy_(batch.targets);
  }
}

void CudaPlan::plan_targets(const at::Tensor& targets) {
  const bool squared = stage_.options.loss.kind == LossKind::mse;
  const int64_t expected = squared ? result_.numel() : result_.size(0);
  if (targets.numel() != expected || (!squared && result_.dim() != 2)) {
    throw ConfigError(
        "[exec] the loss " + std::string(name_of(stage_.options.loss.kind)) +
        " of outputs of " + std::to_string(result_.numel()) + " values takes " +
        std::to_string(expected) + " targets, and gets " +
        std::to_string(targets.numel()) + "; change --loss or the model");
  }
  if (!targets_.defined()) {
    targets_ = at::empty(
        targets.sizes(), result_.options().dtype(squared ? stage_.dtype : at::kLong));
  }
}

BatchRecord* CudaPlan::record_on_device() const {
  return reinterpret_cast<BatchRecord*>(record_.data_ptr<int64_t>());
}

CudaPass CudaPlan::pass(cuda::Stream stream) const {
  auto* counters = reinterpret_cast<unsigned*>(counters_.data_ptr<int32_t>());
  return {record_on_device(), {workspace_.data_ptr<uint8_t>(), counters}, stream};
}

void CudaPlan::forward(const StepContext& context, cuda::Stream stream) {
  for (const auto& op : ops_) {
    op->forward(pass(stream));
  }
  if (stage_.options.last) {
    compute_loss(context, stream);
  }
}

void CudaPlan::compute_loss(const StepContext& context, cuda::Stream stream) {
  const float* scale =
      context.loss_scale.defined() ? context.loss_scale.data_ptr<float>() : nullptr;
  if (stage_.dtype == at::kDouble) {
    compute_loss_of<double>(scale, stream);
  } else {
    compute_loss_of<float>(scale, stream);
  }
}

template <typename T>
void CudaPlan::compute_loss_of(const float* scale, cuda::Stream stream) {
  BatchRecord* record = record_on_device();
  const cuda::LossWeight weight{&record->loss_weight, scale};
  const int64_t samples = result_.size(0);
  const LossKind kind = stage_.options.loss.kind;
  T* grad = training_ ? grad_output_.data_ptr<T>() : nullptr;
  if (kind == LossKind::mse) {
    cuda::squared_loss(
        samples, samples == 0 ? 0 : result_.numel() / samples, result_.data_ptr<T>(),
        targets_.data_ptr<T>(), weight, record->sums, grad, stream);
    return;
  }
  const bool log_softmax = stage_.ends_with_log_softmax;
  cuda::class_loss(
      log_softmax ? without_log_softmax(kind) : kind, samples, result_.size(1),
      result_.data_ptr<T>(), targets_.data_ptr<int64_t>(), weight, record->sums, grad,
      log_softmax ? output_.data_ptr<T>() : nullptr, stream);
}

void CudaPlan::backward(
    const at::Tensor& grad_output, bool accumulate, const StepContext& context,
    GradientSink& sink, cuda::Stream stream) {
  if (!stage_.options.last) {
    grad_output_.copy_(grad_output);
  }
  const CudaPass of = pass(stream);
  for (size_t i = ops_.size(); i-- > first_with_gradient_;) {
    const BoundLayer& bound = layers_[i];
    if (context.trace != nullptr && !bound.fused.layer.name.empty()) {
      context.trace->mark("compute", "backward " + bound.fused.layer.name);
    }
    ops_[i]->backward(of, accumulate);
    for (const size_t slot : bound.slots) {
      sink.gradient_ready(slot);
    }
  }
}

StepSums CudaPlan::sums() const {
  return StepSums(
      record_.view(at::kDouble).slice(0, kSumsAt, kBatchRecordWords).clone());
}

}  // namespace tandem

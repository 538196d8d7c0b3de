#include <utility>
#include <vector>

#include "tandem/exec/device/cuda_op_parts.h"
#include "tandem/kernels/cuda/batch_norm.h"
#include "tandem/kernels/cuda/dropout.h"
#include "tandem/kernels/cuda/pool.h"

namespace tandem {

namespace {

template <typename T>
class BatchNormOp : public OwnOutput {
 public:
  BatchNormOp(const BoundLayer& layer, bool training)
      : fused_(layer.fused), tensors_(layer.tensors), training_(training) {}

  at::Tensor plan_forward(const at::Tensor& input) override {
    check_images(fused_.layer.name, input);
    check_input(fused_.layer.name, "channels", input.size(1), fused_.layer.out);
    shape_ = {input.size(0), input.size(1), input.size(2) * input.size(3)};
    cuda::check_batch_norm(shape_);
    input_ = input;
    output_ = empty_as(input);
    saved_ = at::empty({2 * shape_.channels}, input.options().dtype(at::kDouble));
    return output_;
  }

  cuda::WorkspaceSize workspace() const override {
    return in_bytes({cuda::batch_norm_workspace(shape_)}, sizeof(double));
  }

  void forward(const CudaPass& pass) override {
    cuda::BatchNormParameters<T> parameters;
    parameters.weight = data<const T>(tensors_.weight);
    parameters.bias = data<const T>(tensors_.bias);
    parameters.relu = fused_.relu;
    if (!training_) {
      cuda::batch_norm_evaluation(
          shape_, parameters, data<const T>(input_),
          data<const T>(tensors_.running_mean), data<const T>(tensors_.running_var),
          data<T>(output_), pass.stream);
      return;
    }
    cuda::RunningStatistics<T> running;
    running.mean = data<T>(tensors_.running_mean);
    running.variance = data<T>(tensors_.running_var);
    running.batches = data<int64_t>(tensors_.num_batches);
    cuda::batch_norm(
        shape_, parameters, data<const T>(input_), running,
        static_cast<double*>(pass.workspace.values), data<double>(saved_),
        data<T>(output_), pass.stream);
  }

  void backward(const CudaPass& pass, bool accumulate) override {
    cuda::batch_norm_backward<T>(
        shape_, data<const T>(tensors_.weight), data<const T>(input_),
        data<const double>(saved_), data<const T>(grad_output_),
        fused_.relu ? data<const T>(output_) : nullptr,
        static_cast<double*>(pass.workspace.values),
        {data<T>(grad_input_), data<T>(tensors_.weight_grad),
         data<T>(tensors_.bias_grad), accumulate},
        pass.stream);
  }

 private:
  FusedLayer fused_;
  LayerTensors tensors_;
  bool training_;
  cuda::BatchNormShape shape_;
  at::Tensor saved_;
};

template <typename T>
class PoolOp : public OwnOutput {
 public:
  explicit PoolOp(const BoundLayer& layer) : fused_(layer.fused) {}

  at::Tensor plan_forward(const at::Tensor& input) override {
    check_images("max_pool2d", input);
    shape_ = {input.size(0), input.size(1), input.size(2), input.size(3)};
    input_ = input;
    output_ = empty_as(
        input, {shape_.images, shape_.channels, shape_.height / 2, shape_.width / 2});
    return output_;
  }

  void forward(const CudaPass& pass) override {
    cuda::max_pool(
        shape_, behind(fused_, pass), data<const T>(input_), data<T>(output_),
        pass.stream);
  }

  void backward(const CudaPass& pass, bool) override {
    cuda::max_pool_backward(
        shape_, behind(fused_, pass), data<const T>(input_),
        data<const T>(grad_output_), data<T>(grad_input_), pass.stream);
  }

 private:
  FusedLayer fused_;
  cuda::PoolShape shape_;
};

// In place: a layer before it needs its output for no more than the ReLU's gate, behind
// which a gradient of 0 stays one.
template <typename T>
class DropoutOp : public CudaOp {
 public:
  explicit DropoutOp(Layer layer) : layer_(std::move(layer)) {}

  at::Tensor plan_forward(const at::Tensor& input) override {
    values_ = input;
    const bool whole_channels = layer_.kind == LayerKind::dropout2d && input.dim() == 4;
    area_ = whole_channels ? input.size(2) * input.size(3) : 1;
    elements_ = values_of_sample(input) / area_;
    return values_;
  }
  at::Tensor plan_backward(
      const at::Tensor& grad_output, bool wants_input_grad) override {
    gradients_ = wants_input_grad ? grad_output : at::Tensor();
    return gradients_;
  }
  void forward(const CudaPass& pass) override {
    apply(pass, values_);
  }
  void backward(const CudaPass& pass, bool) override {
    if (gradients_.defined()) {
      apply(pass, gradients_);
    }
  }

 private:
  void apply(const CudaPass& pass, const at::Tensor& values) const {
    const int64_t samples = values.size(0);
    if (area_ == 1) {
      cuda::apply_dropout(
          &pass.record->place, layer_.place, samples, elements_, layer_.p,
          data<const T>(values), data<T>(values), pass.stream);
    } else {
      cuda::apply_channel_dropout(
          &pass.record->place, layer_.place, samples, elements_, area_, layer_.p,
          data<const T>(values), data<T>(values), pass.stream);
    }
  }

  Layer layer_;
  at::Tensor values_;
  at::Tensor gradients_;
  // Of a sample: decisions, and values for each.
  int64_t elements_ = 0;
  int64_t area_ = 1;
};

// The same memory in other sizes.
class FlattenOp : public CudaOp {
 public:
  at::Tensor plan_forward(const at::Tensor& input) override {
    sizes_ = input.sizes().vec();
    return input.view({input.size(0), values_of_sample(input)});
  }
  at::Tensor plan_backward(
      const at::Tensor& grad_output, bool wants_input_grad) override {
    return wants_input_grad ? grad_output.view(sizes_) : at::Tensor();
  }
  void forward(const CudaPass&) override {}
  void backward(const CudaPass&, bool) override {}

 private:
  std::vector<int64_t> sizes_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_batch_norm(
    const BoundLayer& layer, at::ScalarType dtype, bool training) {
  if (dtype == at::kDouble) {
    return std::make_unique<BatchNormOp<double>>(layer, training);
  }
  return std::make_unique<BatchNormOp<float>>(layer, training);
}

std::unique_ptr<CudaOp> make_cuda_max_pool(
    const BoundLayer& layer, at::ScalarType dtype) {
  if (dtype == at::kDouble) {
    return std::make_unique<PoolOp<double>>(layer);
  }
  return std::make_unique<PoolOp<float>>(layer);
}

std::unique_ptr<CudaOp> make_cuda_dropout(
    const BoundLayer& layer, at::ScalarType dtype) {
  if (dtype == at::kDouble) {
    return std::make_unique<DropoutOp<double>>(layer.fused.layer);
  }
  return std::make_unique<DropoutOp<float>>(layer.fused.layer);
}

std::unique_ptr<CudaOp> make_cuda_flatten() {
  return std::make_unique<FlattenOp>();
}

}  // namespace tandem

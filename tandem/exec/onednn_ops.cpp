#include "tandem/exec/onednn_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tandem/core/simd.h"

namespace tandem {

namespace {

using dnnl::algorithm;
using dnnl::memory;
using dnnl::prop_kind;
using Dims = memory::dims;

constexpr auto kFloat = memory::data_type::f32;
constexpr double kBatchNormMomentum = 0.1;
constexpr float kBatchNormEpsilon = 1e-5F;

memory::desc plain_desc(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * dims[i];
  }
  return {dims, kFloat, strides};
}

memory::desc any_desc(const Dims& dims) {
  return {dims, kFloat, memory::format_tag::any};
}

Dims dims_of(const memory& m) {
  return m.get_desc().dims();
}

float* data_of(const memory& m) {
  return static_cast<float*>(m.get_data_handle());
}

// Elements of the buffer, padded channels included.
int64_t floats_of(const memory& m) {
  return static_cast<int64_t>(m.get_desc().get_size() / sizeof(float));
}

float* data_of(const at::Tensor& tensor) {
  return tensor.data_ptr<float>();
}

memory plain_over(const at::Tensor& tensor, const dnnl::engine& engine) {
  return plain_memory(tensor.sizes().vec(), engine, data_of(tensor));
}

TANDEM_SIMD_CLONES void add_into(const float* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] += from[i];
  }
}

TANDEM_SIMD_CLONES void multiply(
    const float* a, const float* b, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = a[i] * b[i];
  }
}

TANDEM_SIMD_CLONES void scale(const float* a, float factor, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = a[i] * factor;
  }
}

TANDEM_SIMD_CLONES void rectify(const float* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = in[i] > 0 ? in[i] : 0;
  }
}

// The gradient behind a ReLU whose output is `output`.
TANDEM_SIMD_CLONES void rectify_gradient(
    const float* output, const float* grad, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = output[i] > 0 ? grad[i] : 0;
  }
}

TANDEM_SIMD_CLONES void add_rows(
    const float* rows, int64_t count, int64_t width, float* sum) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      sum[j] += rows[i * width + j];
    }
  }
}

class Op : public OnednnOp {
 public:
  explicit Op(const OnednnContext& context) : context_(context) {}

 protected:
  const dnnl::stream& stream() const {
    return context_.stream;
  }
  memory make(const memory::desc& desc) const {
    return memory(desc, context_.engine);
  }
  prop_kind forward_kind() const {
    return context_.training ? prop_kind::forward_training
                             : prop_kind::forward_inference;
  }

  OnednnContext context_;
};

class Relu : public Op {
 public:
  using Op::Op;

  memory plan_forward(const memory& input) override {
    input_ = input;
    output_ = make(input.get_desc());
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool) override {
    grad_output_ = change_.plan(grad_output, output_.get_desc(), context_);
    return grad_output_;
  }

  void forward(const OnednnPass&) override {
    rectify(data_of(input_), floats_of(input_), data_of(output_));
  }

  void backward_input() override {
    change_.run(stream());
    float* grad = data_of(grad_output_);
    rectify_gradient(data_of(output_), grad, floats_of(output_), grad);
  }

 private:
  memory input_;
  memory output_;
  memory grad_output_;
  LayoutChange change_;
};

class Convolution : public Op {
 public:
  Convolution(
      const Layer& layer, bool fused_relu, const OnednnTensors& tensors,
      const OnednnContext& context)
      : Op(context), layer_(layer), fused_relu_(fused_relu), tensors_(tensors) {}

  memory plan_forward(const memory& input) override {
    const Dims in = dims_of(input);
    out_dims_ = {in[0], layer_.out, extent(in[2]), extent(in[3])};
    in_dims_ = in;
    input_ = input;
    dnnl::primitive_attr attr;
    if (fused_relu_) {
      dnnl::post_ops relu;
      relu.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
      attr.set_post_ops(relu);
    }
    pd_ = with_fastest([&](algorithm which) {
      return dnnl::convolution_forward::primitive_desc(
          dnnl::convolution_forward::desc(
              forward_kind(), which, any_desc(in), any_desc(weight_dims()), bias_desc(),
              any_desc(out_dims_), stride(), padding(), padding()),
          attr, context_.engine);
    });
    forward_ = dnnl::convolution_forward(pd_);
    const memory source = input_change_.plan(input, pd_.src_desc(), context_);
    const memory weights = plain_over(tensors_.weight, context_.engine);
    const memory packed = weight_change_.plan(weights, pd_.weights_desc(), context_);
    output_ = make(pd_.dst_desc());
    forward_arguments_ = {
        {DNNL_ARG_SRC, source},
        {DNNL_ARG_WEIGHTS, packed},
        {DNNL_ARG_BIAS, plain_over(tensors_.bias, context_.engine)},
        {DNNL_ARG_DST, output_}};
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool wants_input_grad) override {
    // The mask of the ReLU is the output's: same layout.
    grad_output_ = fused_relu_
                       ? grad_change_.plan(grad_output, output_.get_desc(), context_)
                       : grad_output;
    plan_weights_gradient();
    return wants_input_grad ? plan_input_gradient() : memory();
  }

  void forward(const OnednnPass& pass) override {
    input_change_.run(stream());
    if (std::exchange(packed_version_, pass.parameters_version) !=
        pass.parameters_version) {
      weight_change_.run(stream());
      back_weight_change_.run(stream());
    }
    forward_.execute(stream(), forward_arguments_);
  }

  void backward_parameters() override {
    grad_change_.run(stream());
    if (fused_relu_) {
      float* grad = data_of(grad_output_);
      rectify_gradient(data_of(output_), grad, floats_of(output_), grad);
    }
    weights_input_change_.run(stream());
    weights_grad_change_.run(stream());
    backward_weights_.execute(stream(), weights_arguments_);
    add_weights_.execute(
        stream(), weights_arguments_.at(DNNL_ARG_DIFF_WEIGHTS), weight_grad_);
    add_into(
        data_of(weights_arguments_.at(DNNL_ARG_DIFF_BIAS)), layer_.out,
        data_of(tensors_.bias_grad));
  }

  void backward_input() override {
    data_grad_change_.run(stream());
    backward_data_.execute(stream(), data_arguments_);
  }

 private:
  int64_t extent(int64_t in) const {
    return (in + 2 * layer_.padding - layer_.kernel) / layer_.stride + 1;
  }
  Dims weight_dims() const {
    return {layer_.out, layer_.in, layer_.kernel, layer_.kernel};
  }
  memory::desc bias_desc() const {
    return plain_desc({layer_.out});
  }
  Dims stride() const {
    return {layer_.stride, layer_.stride};
  }
  Dims padding() const {
    return {layer_.padding, layer_.padding};
  }

  // Winograd's products for 3x3 windows, where oneDNN has them for this shape and this
  // CPU; a fixed rule, so that all ranks and a resumed run choose alike.
  template <typename Make>
  std::invoke_result_t<Make, algorithm> with_fastest(Make&& make_pd) const {
    if (layer_.kernel == 3 && layer_.stride == 1 && layer_.in % 16 == 0 &&
        layer_.out % 16 == 0) {
      try {
        return make_pd(algorithm::convolution_winograd);
      } catch (const dnnl::error&) {
        // Not for this CPU.
      }
    }
    return make_pd(algorithm::convolution_direct);
  }

  void plan_weights_gradient() {
    const auto pd = with_fastest([&](algorithm which) {
      return dnnl::convolution_backward_weights::primitive_desc(
          dnnl::convolution_backward_weights::desc(
              which, any_desc(in_dims_), any_desc(weight_dims()), bias_desc(),
              any_desc(out_dims_), stride(), padding(), padding()),
          context_.engine, pd_);
    });
    backward_weights_ = dnnl::convolution_backward_weights(pd);
    const memory diff_weights = make(pd.diff_weights_desc());
    weights_arguments_ = {
        {DNNL_ARG_SRC, weights_input_change_.plan(input_, pd.src_desc(), context_)},
        {DNNL_ARG_DIFF_DST,
         weights_grad_change_.plan(grad_output_, pd.diff_dst_desc(), context_)},
        {DNNL_ARG_DIFF_WEIGHTS, diff_weights},
        {DNNL_ARG_DIFF_BIAS, make(bias_desc())}};
    weight_grad_ = plain_over(tensors_.weight_grad, context_.engine);
    dnnl::primitive_attr adds;
    dnnl::post_ops sum;
    sum.append_sum(1);
    adds.set_post_ops(sum);
    add_weights_ = dnnl::reorder(diff_weights, weight_grad_, adds);
  }

  memory plan_input_gradient() {
    const auto pd = with_fastest([&](algorithm which) {
      return dnnl::convolution_backward_data::primitive_desc(
          dnnl::convolution_backward_data::desc(
              which, any_desc(in_dims_), any_desc(weight_dims()), any_desc(out_dims_),
              stride(), padding(), padding()),
          context_.engine, pd_);
    });
    backward_data_ = dnnl::convolution_backward_data(pd);
    const memory grad_input = make(pd.diff_src_desc());
    const memory weights = plain_over(tensors_.weight, context_.engine);
    data_arguments_ = {
        {DNNL_ARG_DIFF_DST,
         data_grad_change_.plan(grad_output_, pd.diff_dst_desc(), context_)},
        {DNNL_ARG_WEIGHTS,
         back_weight_change_.plan(weights, pd.weights_desc(), context_)},
        {DNNL_ARG_DIFF_SRC, grad_input}};
    return grad_input;
  }

  using Arguments = std::unordered_map<int, memory>;

  Layer layer_;
  bool fused_relu_;
  OnednnTensors tensors_;
  Dims in_dims_;
  Dims out_dims_;
  memory input_;
  memory output_;
  memory grad_output_;
  memory weight_grad_;
  dnnl::convolution_forward::primitive_desc pd_;
  dnnl::convolution_forward forward_;
  dnnl::convolution_backward_weights backward_weights_;
  dnnl::convolution_backward_data backward_data_;
  dnnl::reorder add_weights_;
  Arguments forward_arguments_;
  Arguments weights_arguments_;
  Arguments data_arguments_;
  LayoutChange input_change_;
  LayoutChange weight_change_;
  LayoutChange grad_change_;
  LayoutChange weights_input_change_;
  LayoutChange weights_grad_change_;
  LayoutChange data_grad_change_;
  LayoutChange back_weight_change_;
  // Of the packed copies.
  int64_t packed_version_ = -1;
};

class Linear : public Op {
 public:
  Linear(bool fused_relu, const OnednnTensors& tensors, const OnednnContext& context)
      : Op(context),
        fused_relu_(fused_relu),
        tensors_(tensors),
        out_(tensors.weight.size(0)),
        in_(tensors.weight.size(1)) {}

  memory plan_forward(const memory& input) override {
    count_ = dims_of(input)[0];
    input_ = input_change_.plan(input, plain_desc({count_, in_}), context_);
    output_ = make(plain_desc({count_, out_}));
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool wants_input_grad) override {
    grad_output_ = grad_change_.plan(grad_output, output_.get_desc(), context_);
    grad_input_ = wants_input_grad ? make(plain_desc({count_, in_})) : memory();
    return grad_input_;
  }

  void forward(const OnednnPass&) override {
    input_change_.run(stream());
    float* out = data_of(output_);
    for (int64_t i = 0; i < count_; ++i) {
      std::memcpy(
          out + i * out_, data_of(tensors_.bias),
          static_cast<size_t>(out_) * sizeof(float));
    }
    dnnl::sgemm(
        'N', 'T', count_, out_, in_, 1, data_of(input_), in_, data_of(tensors_.weight),
        in_, 1, out, out_);
    if (fused_relu_) {
      rectify(out, count_ * out_, out);
    }
  }

  void backward_parameters() override {
    grad_change_.run(stream());
    float* grad = data_of(grad_output_);
    if (fused_relu_) {
      rectify_gradient(data_of(output_), grad, count_ * out_, grad);
    }
    add_rows(grad, count_, out_, data_of(tensors_.bias_grad));
    dnnl::sgemm(
        'T', 'N', out_, in_, count_, 1, grad, out_, data_of(input_), in_, 1,
        data_of(tensors_.weight_grad), in_);
  }

  void backward_input() override {
    dnnl::sgemm(
        'N', 'N', count_, in_, out_, 1, data_of(grad_output_), out_,
        data_of(tensors_.weight), in_, 0, data_of(grad_input_), in_);
  }

 private:
  bool fused_relu_;
  OnednnTensors tensors_;
  int64_t out_;
  int64_t in_;
  int64_t count_ = 0;
  memory input_;
  memory output_;
  memory grad_output_;
  memory grad_input_;
  LayoutChange input_change_;
  LayoutChange grad_change_;
};

class MaxPool : public Op {
 public:
  MaxPool(const Layer& layer, const OnednnContext& context)
      : Op(context), layer_(layer) {}

  memory plan_forward(const memory& input) override {
    const Dims in = dims_of(input);
    const Dims out = {in[0], in[1], extent(in[2]), extent(in[3])};
    pd_ = {
        {forward_kind(), algorithm::pooling_max, input.get_desc(), any_desc(out),
         stride(), kernel(), none(), none()},
        context_.engine};
    forward_ = dnnl::pooling_forward(pd_);
    output_ = make(pd_.dst_desc());
    arguments_ = {{DNNL_ARG_SRC, input}, {DNNL_ARG_DST, output_}};
    if (context_.training) {
      workspace_ = make(pd_.workspace_desc());
      arguments_[DNNL_ARG_WORKSPACE] = workspace_;
    }
    input_desc_ = input.get_desc();
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool) override {
    const dnnl::pooling_backward::primitive_desc pd(
        {algorithm::pooling_max, input_desc_, output_.get_desc(), stride(), kernel(),
         none(), none()},
        context_.engine, pd_);
    backward_ = dnnl::pooling_backward(pd);
    const memory grad_input = make(input_desc_);
    back_arguments_ = {
        {DNNL_ARG_DIFF_DST,
         grad_change_.plan(grad_output, output_.get_desc(), context_)},
        {DNNL_ARG_WORKSPACE, workspace_},
        {DNNL_ARG_DIFF_SRC, grad_input}};
    return grad_input;
  }

  void forward(const OnednnPass&) override {
    forward_.execute(stream(), arguments_);
  }

  void backward_input() override {
    grad_change_.run(stream());
    backward_.execute(stream(), back_arguments_);
  }

 private:
  int64_t extent(int64_t in) const {
    return (in - layer_.kernel) / layer_.stride + 1;
  }
  Dims stride() const {
    return {layer_.stride, layer_.stride};
  }
  Dims kernel() const {
    return {layer_.kernel, layer_.kernel};
  }
  static Dims none() {
    return {0, 0};
  }

  Layer layer_;
  memory output_;
  memory workspace_;
  memory::desc input_desc_;
  dnnl::pooling_forward::primitive_desc pd_;
  dnnl::pooling_forward forward_;
  dnnl::pooling_backward backward_;
  std::unordered_map<int, memory> arguments_;
  std::unordered_map<int, memory> back_arguments_;
  LayoutChange grad_change_;
};

// In rows, as the masks are. Does nothing without a backward.
class Dropout : public Op {
 public:
  Dropout(const Layer& layer, const OnednnContext& context)
      : Op(context), layer_(layer) {}

  memory plan_forward(const memory& input) override {
    if (!context_.training) {
      return input;
    }
    dims_ = dims_of(input);
    input_ = change_.plan(input, plain_desc(dims_), context_);
    output_ = make(plain_desc(dims_));
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool) override {
    grad_output_ = grad_change_.plan(grad_output, output_.get_desc(), context_);
    return grad_output_;
  }

  void forward(const OnednnPass& pass) override {
    if (!context_.training) {
      return;
    }
    change_.run(stream());
    mask_ = dropout_mask(
        pass.samples, layer_.place, dims_[0],
        whole_channels() ? dims_[1] : floats_of(output_) / dims_[0], layer_.p,
        at::kFloat);
    apply(data_of(input_), data_of(output_));
  }

  void backward_input() override {
    grad_change_.run(stream());
    apply(data_of(grad_output_), data_of(grad_output_));
  }

 private:
  bool whole_channels() const {
    return layer_.kind == LayerKind::dropout2d && dims_.size() == 4;
  }

  void apply(const float* in, float* out) const {
    if (!whole_channels()) {
      multiply(in, data_of(mask_), mask_.numel(), out);
      return;
    }
    const int64_t pixels = dims_[2] * dims_[3];
    for (int64_t i = 0; i < mask_.numel(); ++i) {
      scale(in + i * pixels, data_of(mask_)[i], pixels, out + i * pixels);
    }
  }

  Layer layer_;
  Dims dims_;
  memory input_;
  memory output_;
  memory grad_output_;
  at::Tensor mask_;
  LayoutChange change_;
  LayoutChange grad_change_;
};

class Flatten : public Op {
 public:
  using Op::Op;

  memory plan_forward(const memory& input) override {
    const Dims dims = dims_of(input);
    shape_ = plain_desc(dims);
    const memory rows = change_.plan(input, shape_, context_);
    const int64_t count = dims[0];
    return plain_memory(
        {count, floats_of(rows) / count}, context_.engine, data_of(rows));
  }

  memory plan_backward(const memory& grad_output, bool) override {
    const memory rows =
        grad_change_.plan(grad_output, plain_desc(dims_of(grad_output)), context_);
    return memory(shape_, context_.engine, rows.get_data_handle());
  }

  void forward(const OnednnPass&) override {
    change_.run(stream());
  }
  void backward_input() override {
    grad_change_.run(stream());
  }

 private:
  memory::desc shape_;
  LayoutChange change_;
  LayoutChange grad_change_;
};

class BatchNorm : public Op {
 public:
  BatchNorm(const OnednnTensors& tensors, const OnednnContext& context)
      : Op(context), tensors_(tensors) {}

  memory plan_forward(const memory& input) override {
    using Flags = dnnl::normalization_flags;
    flags_ = Flags::use_scale | Flags::use_shift;
    if (!context_.training) {
      flags_ |= Flags::use_global_stats;
    }
    input_ = input;
    pd_ = {
        {forward_kind(), input.get_desc(), kBatchNormEpsilon, flags_}, context_.engine};
    forward_ = dnnl::batch_normalization_forward(pd_);
    output_ = make(pd_.dst_desc());
    const auto over = [&](const at::Tensor& tensor) {
      return plain_over(tensor, context_.engine);
    };
    mean_ = context_.training ? make(pd_.mean_desc()) : over(tensors_.running_mean);
    variance_ =
        context_.training ? make(pd_.variance_desc()) : over(tensors_.running_var);
    arguments_ = {
        {DNNL_ARG_SRC, input},
        {DNNL_ARG_MEAN, mean_},
        {DNNL_ARG_VARIANCE, variance_},
        {DNNL_ARG_SCALE, over(tensors_.weight)},
        {DNNL_ARG_SHIFT, over(tensors_.bias)},
        {DNNL_ARG_DST, output_}};
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool) override {
    const memory::desc desc = input_.get_desc();
    const dnnl::batch_normalization_backward::primitive_desc pd(
        {prop_kind::backward, desc, desc, kBatchNormEpsilon, flags_}, context_.engine,
        pd_);
    backward_ = dnnl::batch_normalization_backward(pd);
    const memory grad_input = make(pd.diff_src_desc());
    const auto channels = plain_desc({tensors_.weight.size(0)});
    scale_grad_ = make(channels);
    shift_grad_ = make(channels);
    back_arguments_ = {
        {DNNL_ARG_SRC, input_},
        {DNNL_ARG_MEAN, mean_},
        {DNNL_ARG_VARIANCE, variance_},
        {DNNL_ARG_SCALE, plain_over(tensors_.weight, context_.engine)},
        // Not needed, but 2.6 counts its arguments.
        {DNNL_ARG_SHIFT, plain_over(tensors_.bias, context_.engine)},
        {DNNL_ARG_DIFF_DST,
         grad_change_.plan(grad_output, pd.diff_dst_desc(), context_)},
        {DNNL_ARG_DIFF_SRC, grad_input},
        {DNNL_ARG_DIFF_SCALE, scale_grad_},
        {DNNL_ARG_DIFF_SHIFT, shift_grad_}};
    return grad_input;
  }

  void forward(const OnednnPass&) override {
    forward_.execute(stream(), arguments_);
    if (context_.training) {
      track();
    }
  }

  // One primitive gives all three gradients.
  void backward_parameters() override {
    grad_change_.run(stream());
    backward_.execute(stream(), back_arguments_);
    const int64_t channels = tensors_.weight.size(0);
    add_into(data_of(scale_grad_), channels, data_of(tensors_.weight_grad));
    add_into(data_of(shift_grad_), channels, data_of(tensors_.bias_grad));
  }
  void backward_input() override {}

 private:
  // The running variance is the unbiased one, as PyTorch's is.
  void track() {
    const Dims dims = dims_of(input_);
    const auto count = static_cast<double>(dims[0] * dims[2] * dims[3]);
    const double unbiased = count / std::max(1.0, count - 1);
    float* mean = data_of(tensors_.running_mean);
    float* variance = data_of(tensors_.running_var);
    for (int64_t i = 0; i < dims[1]; ++i) {
      mean[i] = static_cast<float>(
          (1 - kBatchNormMomentum) * mean[i] + kBatchNormMomentum * data_of(mean_)[i]);
      variance[i] = static_cast<float>(
          (1 - kBatchNormMomentum) * variance[i] +
          kBatchNormMomentum * unbiased * data_of(variance_)[i]);
    }
    *tensors_.num_batches.data_ptr<int64_t>() += 1;
  }

  OnednnTensors tensors_;
  dnnl::normalization_flags flags_ = dnnl::normalization_flags::none;
  memory input_;
  memory output_;
  memory mean_;
  memory variance_;
  memory scale_grad_;
  memory shift_grad_;
  dnnl::batch_normalization_forward::primitive_desc pd_;
  dnnl::batch_normalization_forward forward_;
  dnnl::batch_normalization_backward backward_;
  std::unordered_map<int, memory> arguments_;
  std::unordered_map<int, memory> back_arguments_;
  LayoutChange grad_change_;
};

// Over the few classes of a classifier: no primitive pays.
class LogSoftmax : public Op {
 public:
  using Op::Op;

  memory plan_forward(const memory& input) override {
    const Dims dims = dims_of(input);
    count_ = dims[0];
    classes_ = dims[1];
    input_ = change_.plan(input, plain_desc(dims), context_);
    output_ = make(plain_desc(dims));
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool) override {
    grad_ = grad_change_.plan(grad_output, output_.get_desc(), context_);
    return grad_;
  }

  void forward(const OnednnPass&) override {
    change_.run(stream());
    for (int64_t i = 0; i < count_; ++i) {
      const float* in = data_of(input_) + i * classes_;
      float* out = data_of(output_) + i * classes_;
      const float most = *std::max_element(in, in + classes_);
      float sum = 0;
      for (int64_t j = 0; j < classes_; ++j) {
        sum += std::exp(in[j] - most);
      }
      const float log_sum = most + std::log(sum);
      for (int64_t j = 0; j < classes_; ++j) {
        out[j] = in[j] - log_sum;
      }
    }
  }

  void backward_input() override {
    grad_change_.run(stream());
    for (int64_t i = 0; i < count_; ++i) {
      const float* out = data_of(output_) + i * classes_;
      float* grad = data_of(grad_) + i * classes_;
      float sum = 0;
      for (int64_t j = 0; j < classes_; ++j) {
        sum += grad[j];
      }
      for (int64_t j = 0; j < classes_; ++j) {
        grad[j] -= std::exp(out[j]) * sum;
      }
    }
  }

 private:
  int64_t count_ = 0;
  int64_t classes_ = 0;
  memory input_;
  memory output_;
  memory grad_;
  LayoutChange change_;
  LayoutChange grad_change_;
};

}  // namespace

memory plain_memory(const Dims& dims, const dnnl::engine& engine, float* data) {
  return data == nullptr ? memory(plain_desc(dims), engine)
                         : memory(plain_desc(dims), engine, data);
}

memory LayoutChange::plan(
    const memory& from, const memory::desc& wanted, const OnednnContext& context) {
  if (from.get_desc() == wanted) {
    return from;
  }
  from_ = from;
  to_ = memory(wanted, context.engine);
  reorder_ = dnnl::reorder(from_, to_);
  return to_;
}

void LayoutChange::run(const dnnl::stream& stream) {
  if (to_) {
    reorder_.execute(stream, from_, to_);
  }
}

std::unique_ptr<OnednnOp> make_onednn_op(
    const Layer& layer, bool fused_relu, const OnednnTensors& tensors,
    const OnednnContext& context) {
  switch (layer.kind) {
    case LayerKind::conv2d:
      return std::make_unique<Convolution>(layer, fused_relu, tensors, context);
    case LayerKind::linear:
      return std::make_unique<Linear>(fused_relu, tensors, context);
    case LayerKind::batch_norm2d:
      return std::make_unique<BatchNorm>(tensors, context);
    case LayerKind::relu:
      return std::make_unique<Relu>(context);
    case LayerKind::max_pool2d:
      return std::make_unique<MaxPool>(layer, context);
    case LayerKind::dropout:
    case LayerKind::dropout2d:
      return std::make_unique<Dropout>(layer, context);
    case LayerKind::flatten:
      return std::make_unique<Flatten>(context);
    case LayerKind::log_softmax:
      return std::make_unique<LogSoftmax>(context);
  }
  return nullptr;
}

}  // namespace tandem

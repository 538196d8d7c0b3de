#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

#include "tandem/core/parallel.h"
#include "tandem/exec/compiled/node_reader.h"
#include "tandem/exec/compiled/onednn_library.h"
#include "tandem/exec/compiled/onednn_primitives.h"
#include "tandem/exec/compiled/operation.h"
#include "tandem/exec/compiled/pointwise_kernels.h"
#include "tandem/kernels/amx_linear.h"
#include "tandem/kernels/isa.h"
#include "tandem/kernels/linear_loops.h"

namespace tandem {

namespace {

using dnnl::memory;

using MultiplyWide = void (*)(const WideProduct&, int64_t, int64_t, float*);

// Returns null if oneDNN's products are as fast. On AVX2, oneDNN's gradients are half
// as fast as this kernel, and its forward products are as fast. NEON uses the kernel
// for the same products as AVX2.
MultiplyWide wide_product() {
#if defined(__x86_64__)
  return kernel_isa() == Isa::avx2 ? &avx2::multiply_wide : nullptr;
#elif defined(__aarch64__)
  return &neon::multiply_wide;
#else
  return nullptr;
#endif
}

// Base class of the linear layers, which differ in how they multiply. Outputs and their
// gradients are contiguous float32.
class Linear : public OnednnOp {
 public:
  using OnednnOp::OnednnOp;

 protected:
  float* weight() const {
    return tensors_.weight.data_ptr<float>();
  }

  // Changes the output's gradient to the gradient before the ReLU, and computes the
  // bias's gradient unless the layer is frozen.
  void finish_grad_output(bool accumulate) {
    grad_change_.run(stream());
    float* grad = data_of<float>(grad_output_);
    if (relu_) {
      rectify_gradient(data_of<float>(output_), count_ * out_, grad);
    }
    if (tensors_.is_trained()) {
      add_rows(grad, count_, out_, accumulate, tensors_.bias_grad.data_ptr<float>());
    }
    if (context_.numerics.rounding == Rounding::bf16) {
      round_to_bf16(count_ * out_, grad);
    }
  }

  void plan_rows(int64_t count) {
    count_ = count;
    output_ = make(plain_desc({count_, out_}));
  }

  int64_t out_ = tensors_.weight.size(0);
  int64_t in_ = tensors_.weight.size(1);
  int64_t count_ = 0;
};

// Linear layer in float32. It uses parameters and their gradients in place, because
// packing them costs more time than faster products save.
class Float32Linear : public Linear {
 public:
  using Linear::Linear;

  memory plan_forward(const memory& input) override {
    plan_rows(dims_of(input)[0]);
    plan_input(input, plain_desc({count_, in_}));
    const int64_t most = std::clamp<int64_t>(in_ / kLeastInputs, 1, kMostParts);
    inputs_of_a_part_ = (in_ + most - 1) / most;
    parts_ = (in_ + inputs_of_a_part_ - 1) / inputs_of_a_part_;
    products_ = make(plain_desc({parts_ * count_ * out_}));
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool wants_input_grad) override {
    plan_grad_output(grad_output);
    grad_input_ = wants_input_grad ? make(plain_desc({count_, in_})) : memory();
    if (wide_product_ != nullptr) {
      scratch_size_ = wide_product_scratch(std::max(count_, out_));
      scratch_ = make(plain_desc({at::get_num_threads() * scratch_size_}));
    }
    return grad_input_;
  }

  void forward(const OnednnPass&) override {
    input_change_.run(stream());
    multiply_parts();
    float* out = data_of<float>(output_);
    for (int64_t i = 0; i < count_; ++i) {
      std::memcpy(
          out + i * out_, tensors_.bias.data_ptr<float>(),
          static_cast<size_t>(out_) * sizeof(float));
    }
    for (int64_t part = 0; part < parts_; ++part) {
      store_gradient(product(part), count_ * out_, true, out);
    }
    if (relu_) {
      rectify(out, count_ * out_, out);
    }
  }

  void backward_parameters(bool accumulate) override {
    finish_grad_output(accumulate);
    if (!tensors_.is_trained()) {
      return;
    }
    if (wide_product_ != nullptr) {
      multiply(
          {data_of<float>(grad_output_), 1, out_, data_of<float>(input_),
           tensors_.weight_grad.data_ptr<float>(), out_, in_, count_, accumulate});
      return;
    }
    in_columns([&](int64_t first, int64_t width) {
      dnnl::sgemm(
          'T', 'N', out_, width, count_, 1, data_of<float>(grad_output_), out_,
          data_of<float>(input_) + first, in_, accumulate ? 1 : 0,
          tensors_.weight_grad.data_ptr<float>() + first, in_);
    });
  }

  void backward_input() override {
    if (wide_product_ != nullptr) {
      multiply(
          {data_of<float>(grad_output_), out_, 1, weight(), data_of<float>(grad_input_),
           count_, in_, out_, false});
      return;
    }
    in_columns([&](int64_t first, int64_t width) {
      dnnl::sgemm(
          'N', 'N', count_, width, out_, 1, data_of<float>(grad_output_), out_,
          weight() + first, in_, 0, data_of<float>(grad_input_) + first, in_);
    });
  }

 private:
  float* product(int64_t part) const {
    return data_of<float>(products_) + part * count_ * out_;
  }

  void multiply_parts() const {
    for_each_on_lone_thread(parts_, [&](int64_t part) {
      const int64_t first = part * inputs_of_a_part_;
      dnnl::sgemm(
          'N', 'T', count_, out_, std::min(in_ - first, inputs_of_a_part_), 1,
          data_of<float>(input_) + first, in_, weight() + first, in_, 0, product(part),
          out_);
    });
  }

  // Calls body(first, width) for ranges of the gradients' columns.
  template <typename Body>
  void in_columns(const Body& body) const {
    for_each_on_lone_thread((in_ + kColumns - 1) / kColumns, [&](int64_t i) {
      body(i * kColumns, std::min(kColumns, in_ - i * kColumns));
    });
  }

  void multiply(const WideProduct& product) const {
    const int64_t panels = (in_ + kPanel - 1) / kPanel;
    parallel_for(0, panels, kPanelsOfAPart, [&](int64_t begin, int64_t end) {
      wide_product_(
          product, begin * kPanel, std::min(in_, end * kPanel),
          data_of<float>(scratch_) + at::get_thread_num() * scratch_size_);
    });
  }

  // Largest number of parts into which the inputs are divided. Each output is the sum
  // of the products of the parts, added in order.
  static constexpr int64_t kMostParts = 8;
  static constexpr int64_t kLeastInputs = 128;
  static constexpr int64_t kColumns = 1'024;
  // Smallest number of panels per thread. A panel takes about 5 microseconds, so a
  // thread with fewer panels saves no time.
  static constexpr int64_t kPanelsOfAPart = 8;

  // Null if oneDNN multiplies.
  const MultiplyWide wide_product_ = in_ % 8 == 0 ? wide_product() : nullptr;
  int64_t parts_ = 1;
  int64_t inputs_of_a_part_ = 0;
  memory products_;
  // `scratch_size_` floats for each thread.
  memory scratch_;
  int64_t scratch_size_ = 0;
};

// Multiplies in bfloat16 and adds in float32, with packed copies of the weights.
class Bf16Linear : public Linear {
 public:
  using Linear::Linear;

  memory plan_forward(const memory& input) override {
    plan_rows(dims_of(input)[0]);
    input_ = input;
    pd_ = onednn::describe<dnnl::inner_product_forward>(
        context_.engine, attributes_with_relu(relu_), forward_kind(), source(),
        weights(OnednnType::bf16), plain_desc({out_}), output_.get_desc());
    product_.plan_forward(
        pd_, input, tensors_.weight, tensors_.bias, output_, context_);
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool wants_input_grad) override {
    plan_grad_output(grad_output);
    if (tensors_.is_trained()) {
      plan_weights_gradient();
    }
    return wants_input_grad ? plan_input_gradient() : memory();
  }

  void forward(const OnednnPass& pass) override {
    product_.forward(pass.parameters_version, stream());
  }

  void backward_parameters(bool accumulate) override {
    finish_grad_output(accumulate);
    weights_input_change_.run(stream());
    weights_grad_change_.run(stream());
    backward_weights_.run(stream());
    store_weights_.run(stream(), accumulate);
  }

  void backward_input() override {
    product_.backward(stream());
  }

 private:
  memory::desc source() const {
    return any_desc({count_, in_}, OnednnType::bf16);
  }
  memory::desc weights(OnednnType type) const {
    return any_desc({out_, in_}, type);
  }
  memory::desc grad() const {
    return any_desc({count_, out_}, OnednnType::bf16);
  }

  void plan_weights_gradient() {
    const auto pd = onednn::describe_backward<dnnl::inner_product_backward_weights>(
        context_.engine, {}, pd_, source(), weights(OnednnType::f32), grad());
    const memory diff_weights = make(pd.diff_weights_desc());
    backward_weights_ = {
        dnnl::inner_product_backward_weights(pd),
        {{DNNL_ARG_SRC, weights_input_change_.plan(input_, pd.src_desc(), context_)},
         {DNNL_ARG_DIFF_DST,
          weights_grad_change_.plan(grad_output_, pd.diff_dst_desc(), context_)},
         {DNNL_ARG_DIFF_WEIGHTS, diff_weights}}};
    store_weights_.plan(diff_weights, tensors_.weight_grad, context_);
  }

  memory plan_input_gradient() {
    const auto pd = onednn::describe_backward<dnnl::inner_product_backward_data>(
        context_.engine, {}, pd_, any_desc({count_, in_}, type_of(input_)),
        weights(OnednnType::bf16), grad());
    return product_.plan_backward(pd, grad_output_, tensors_.weight, context_);
  }

  dnnl::inner_product_forward::primitive_desc pd_;
  PackedProduct product_;
  BoundPrimitive backward_weights_;
  GradientStore store_weights_;
  LayoutChange weights_input_change_;
  LayoutChange weights_grad_change_;
};

// Multiplies in bfloat16 and adds in float32, with AMX kernels that read the weights in
// place. There are no copies of the weights or of their gradient.
class AmxLinear : public Linear {
 public:
  using Linear::Linear;

  memory plan_forward(const memory& input) override {
    plan_rows(dims_of(input)[0]);
    shape_ = {count_, in_, out_};
    input_type_ = type_of(input);
    plan_input(input, plain_desc({count_, in_}, OnednnType::bf16));
    plan_parts();
    scratch_bytes_ = std::max(
        amx::forward_scratch(shape_, part(0, out_)), amx::backward_scratch(shape_));
    scratch_ = bytes(parts_ * scratch_bytes_);
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool wants_input_grad) override {
    plan_grad_output(grad_output);
    rounded_grad_ = bytes(amx::rounded_grad_bytes(shape_));
    grad_input_ =
        wants_input_grad ? make(plain_desc({count_, in_}, input_type_)) : memory();
    return grad_input_;
  }

  void forward(const OnednnPass&) override {
    input_change_.run(stream());
    in_parts(out_, [&](amx::Range outputs, void* scratch) {
      amx::linear_forward(
          shape_, outputs, data_of<Bf16>(input_), weight(),
          tensors_.bias.data_ptr<float>(), relu_, data_of<float>(output_), scratch);
    });
  }

  void backward_parameters(bool accumulate) override {
    finish_grad_output(accumulate);
    void* grad = rounded_grad_.get_data_handle();
    amx::round_grad(shape_, data_of<float>(grad_output_), grad);
    if (!tensors_.is_trained()) {
      return;
    }
    in_parts(in_, [&](amx::Range inputs, void* scratch) {
      amx::linear_backward_weight(
          shape_, inputs, grad, data_of<Bf16>(input_), accumulate,
          tensors_.weight_grad.data_ptr<float>(), scratch);
    });
  }

  // Must be called after backward_parameters(), which rounds the gradient.
  void backward_input() override {
    with_type(grad_input_, [&](auto type) {
      using T = decltype(type);
      in_parts(in_, [&](amx::Range inputs, void* scratch) {
        amx::linear_backward_input(
            shape_, inputs, rounded_grad_.get_data_handle(), weight(),
            data_of<T>(grad_input_), scratch);
      });
    });
  }

 private:
  memory bytes(int64_t count) const {
    return make(plain_desc({count}, OnednnType::u8));
  }

  // Makes one part for each thread, but at most one for every four million products,
  // because a thread with fewer products saves no time.
  void plan_parts() {
    constexpr int64_t kProductsOfAPart = 4'000'000;
    const int64_t products = count_ * in_ * out_;
    parts_ = std::clamp<int64_t>(
        products / kProductsOfAPart, 1, std::max(1, at::get_num_threads()));
  }

  amx::Range part(int64_t index, int64_t total) const {
    const int64_t grains = (total + amx::kLinearGrain - 1) / amx::kLinearGrain;
    const int64_t length = (grains + parts_ - 1) / parts_ * amx::kLinearGrain;
    return {std::min(total, index * length), std::min(total, (index + 1) * length)};
  }

  template <typename Body>
  void in_parts(int64_t total, const Body& body) const {
    parallel_for_each(parts_, 1, [&](int64_t i) {
      body(part(i, total), data_of<char>(scratch_) + i * scratch_bytes_);
    });
  }

  amx::LinearShape shape_;
  OnednnType input_type_ = OnednnType::f32;
  memory rounded_grad_;
  int64_t parts_ = 1;
  // Scratch memory of one part, in bytes; a multiple of 64.
  int64_t scratch_bytes_ = 0;
  memory scratch_;
};

std::unique_ptr<OnednnOp> make_linear(
    const FusedLayer& fused, const LayerTensors& tensors,
    const OnednnContext& context) {
  if constexpr (kHasAmxKernels) {
    if (context.product() == OnednnType::bf16 && has_amx()) {
      return make_op<AmxLinear>(fused, tensors, context);
    }
  }
  if (context.product() == OnednnType::bf16) {
    return make_op<Bf16Linear>(fused, tensors, context);
  }
  return make_op<Float32Linear>(fused, tensors, context);
}

// linear(input, weight, bias)
void read_linear(NodeReader& reader) {
  const Value* weight = reader.state(1, "weight");
  reader.state(2, "bias");
  reader.expect(reader.input_dimensions() == 2, "its input is not samples x features");
  if (weight != nullptr) {
    reader.layer.out = weight->shape[0].fixed;
    reader.layer.in = weight->shape[1].fixed;
  }
}

}  // namespace

KernelRow kernel_row(KindTag<LayerKind::linear> kind) {
  return {kind, {"aten::linear"}, &make_linear, &read_linear, Bf16Output::fp32};
}

}  // namespace tandem

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "tandem/exec/compiled/operation.h"
#include "tandem/exec/compiled/pointwise_kernels.h"

namespace tandem {

namespace {

using dnnl::memory;

// Rounds values in place.
using Round = void (*)(int64_t count, float* values);

// Values that a float32 operation must round to have the results of an operation in 16
// bits.
struct Roundings {
  Roundings(const FusedLayer& fused, Rounding rounding) : rule(rounds_of(fused.layer)) {
    if (is_fp16(rounding)) {
      as_fp16(fused, rounding == Rounding::fp16_o2);
    } else {
      as_bf16(fused);
    }
  }

  // Sets the roundings to float16 that core/numerics.h describes.
  void as_fp16(const FusedLayer& fused, bool o2) {
    weights = biases = gradients = rule == RoundedValues::all;
    // Inputs from other layers were rounded as outputs.
    input = fused.first;
    grad_input = rule != RoundedValues::none;
    output = grad_input && (o2 || rule != RoundedValues::output_in_o2);
  }

  // Sets the roundings to bfloat16 that operations make on CPUs that compute in
  // bfloat16.
  void as_bf16(const FusedLayer& fused) {
    const bool product = rule == RoundedValues::all;
    const bool fp32_product = product && !has_bf16_output(fused);
    const bool bf16_product = product && !fp32_product;
    const bool bf16_values = fused.bf16_input && rule == RoundedValues::output;
    // The small convolution reads float32 weights on every CPU.
    weights = product && !fits_small_convolution(fused);
    // Inputs from other layers were rounded as outputs.
    input = fp32_product || (weights && fused.first);
    output = bf16_product || bf16_values;
    grad_input = bf16_product || bf16_values || (fused.bf16_input && fp32_product);
  }

  RoundedValues rule;
  bool weights = false;
  bool biases = false;
  // Gradients of weights and biases.
  bool gradients = false;
  bool input = false;
  bool output = false;
  bool grad_input = false;
};

// Copy of a parameter that the operation reads, rounded, and copy of the gradient that
// the operation writes.
class RoundedParameter {
 public:
  // Replaces the tensors that are rounded with copies.
  void plan(at::Tensor& value, at::Tensor& gradient, bool round, bool round_gradient) {
    if (round) {
      value_ = value;
      value = rounded_ = at::empty_like(value);
    }
    if (round_gradient && gradient.defined()) {
      gradient_ = gradient;
      gradient = written_ = at::empty_like(gradient);
    }
  }

  void refresh(Round round) const {
    if (value_.defined()) {
      auto* to = rounded_.data_ptr<float>();
      std::copy_n(value_.data_ptr<float>(), value_.numel(), to);
      round(value_.numel(), to);
    }
  }

  void give_gradient(bool accumulate, Round round) const {
    if (gradient_.defined()) {
      auto* from = written_.data_ptr<float>();
      round(gradient_.numel(), from);
      store_gradient(from, gradient_.numel(), accumulate, gradient_.data_ptr<float>());
    }
  }

 private:
  at::Tensor value_;
  at::Tensor rounded_;
  at::Tensor gradient_;
  at::Tensor written_;
};

// Runs an operation in float32, with roundings before and after it.
class Rounded : public OnednnOp {
 public:
  Rounded(
      const FusedLayer& fused, const LayerTensors& tensors,
      const OnednnContext& context)
      : OnednnOp(fused, tensors, context),
        rounds_(fused, context.numerics.rounding),
        round_(is_fp16(context.numerics.rounding) ? &round_to_fp16 : &round_to_bf16) {
    weight_.plan(
        tensors_.weight, tensors_.weight_grad, rounds_.weights, rounds_.gradients);
    bias_.plan(tensors_.bias, tensors_.bias_grad, rounds_.biases, rounds_.gradients);
    inner_ = make_plain_onednn_op(fused, tensors_, context);
  }

  memory plan_forward(const memory& input) override {
    input_ = input;
    output_ = inner_->plan_forward(input);
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool wants_input_grad) override {
    grad_input_ = inner_->plan_backward(grad_output, wants_input_grad);
    return grad_input_;
  }

  void forward(const OnednnPass& pass) override {
    if (std::exchange(version_, pass.parameters_version) != pass.parameters_version) {
      weight_.refresh(round_);
      bias_.refresh(round_);
    }
    round(rounds_.input, input_);
    inner_->forward(pass);
    round(rounds_.output, output_);
  }

  void backward_parameters(bool accumulate) override {
    inner_->backward_parameters(accumulate && !rounds_.gradients);
    weight_.give_gradient(accumulate, round_);
    bias_.give_gradient(accumulate, round_);
  }

  void backward_input() override {
    inner_->backward_input();
    round(rounds_.grad_input, grad_input_);
  }

 private:
  void round(bool wanted, const memory& values) const {
    if (wanted) {
      round_(elements_of(values), data_of<float>(values));
    }
  }

  Roundings rounds_;
  Round round_;
  RoundedParameter weight_;
  RoundedParameter bias_;
  // Version of the parameters from which the copies were made.
  int64_t version_ = -1;
  std::unique_ptr<OnednnOp> inner_;
};

}  // namespace

std::unique_ptr<OnednnOp> make_rounded_op(
    const FusedLayer& fused, const LayerTensors& tensors,
    const OnednnContext& context) {
  return make_op<Rounded>(fused, tensors, context);
}

}  // namespace tandem

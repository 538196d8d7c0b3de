#include "tandem/graph/sync_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <tuple>

#include "tandem/graph/single_values.h"

namespace tandem {

namespace {

namespace autograd = torch::autograd;

// Statistics of each channel over the samples of all ranks.
struct Statistics {
  at::Tensor mean;
  // Divided by count, not by count - 1.
  at::Tensor variance;
  double count = 0;
};

// Returns {means, variances, count} of this rank's samples, in float64.
at::Tensor own_statistics(const at::Tensor& x) {
  const int64_t channels = x.size(1);
  const auto options = x.options().dtype(at::kDouble);
  if (x.numel() == 0) {
    return at::zeros({2 * channels + 1}, options);
  }
  const auto [mean, variance] = at::batch_norm_update_stats(x, {}, {}, 0);
  const auto count = static_cast<double>(x.numel() / channels);
  return at::cat(
      {mean.to(at::kDouble), variance.to(at::kDouble), at::full({1}, count, options)});
}

Statistics of_all_ranks(const at::Tensor& x, const StackFunction& stack) {
  const int64_t channels = x.size(1);
  const auto all = stack(own_statistics(x));
  const auto means = all.narrow(1, 0, channels);
  const auto variances = all.narrow(1, channels, channels);
  const auto counts = all.narrow(1, 2 * channels, 1);
  Statistics statistics;
  statistics.count = counts.sum().item<double>();
  const auto mean = (means * counts).sum(0) / statistics.count;
  const auto squares = (variances + (means - mean).square()) * counts;
  statistics.mean = mean.to(x.scalar_type());
  statistics.variance = (squares.sum(0) / statistics.count).to(x.scalar_type());
  return statistics;
}

void update_running(
    at::Tensor& running_mean, at::Tensor& running_var, const Statistics& batch,
    double momentum) {
  const double unbiased = batch.count / std::max(1.0, batch.count - 1);
  running_mean.mul_(1 - momentum).add_(batch.mean, momentum);
  running_var.mul_(1 - momentum).add_(batch.variance, momentum * unbiased);
}

// Returns (x - mean) / sqrt(variance + epsilon) * weight + bias, computed in one pass.
at::Tensor normalize(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
    const Statistics& by, double epsilon) {
  return x.numel() == 0
             ? at::empty_like(x)
             : std::get<0>(at::native_batch_norm(
                   x, weight, bias, by.mean, by.variance, false, 0, epsilon));
}

// Passes a std::function to an operator's backward.
struct Stack : torch::CustomClassHolder {
  explicit Stack(StackFunction function) : call(std::move(function)) {}
  StackFunction call;
};

struct Normalization : autograd::Function<Normalization> {
  static at::Tensor forward(
      autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
      const at::Tensor& bias, const Statistics& batch, double epsilon,
      const StackFunction& stack) {
    context->save_for_backward({x, weight, batch.mean, batch.variance});
    context->saved_data["count"] = batch.count;
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["stack"] =
        c10::IValue::make_capsule(c10::make_intrusive<Stack>(stack));
    return normalize(x, weight, bias, batch, epsilon);
  }

  static autograd::variable_list backward(
      autograd::AutogradContext* context, const autograd::variable_list& outputs) {
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto& weight = saved[1];
    const Statistics batch{saved[2], saved[3], context->saved_data["count"].toDouble()};
    const double epsilon = context->saved_data["epsilon"].toDouble();
    const auto stack = c10::static_intrusive_pointer_cast<Stack>(
        context->saved_data["stack"].toCapsule());

    at::Tensor grad_x = at::zeros_like(x);
    // Sums over this rank's samples of dy * (x - mean) / std, and of dy.
    at::Tensor grad_weight = at::zeros_like(weight);
    at::Tensor grad_bias = at::zeros_like(weight);
    if (x.numel() > 0) {
      // The gradient through x alone, with the statistics as constants.
      std::tie(grad_x, grad_weight, grad_bias) = at::native_batch_norm_backward(
          outputs[0], x, weight, batch.mean, batch.variance, {}, {}, false, epsilon,
          {true, true, true});
    }
    const auto sums =
        stack->call(at::cat({grad_weight, grad_bias}).to(at::kDouble)).sum(0);
    // The gradient through the statistics.
    const auto scale = weight / (batch.variance + epsilon).sqrt() / batch.count;
    const auto parts = sums.to(weight.scalar_type()).chunk(2);
    grad_x.sub_(normalize(x, parts[0] * scale, parts[1] * scale, batch, epsilon));
    return {grad_x, grad_weight, grad_bias, {}, {}, {}};
  }
};

}  // namespace

at::Tensor sync_batch_norm(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
    at::Tensor& running_mean, at::Tensor& running_var, double momentum, double epsilon,
    const StackFunction& stack, const std::string& name) {
  // Under autocast, x is bfloat16. Sums need the parameters' type.
  const auto wide = x.to(weight.scalar_type());
  Statistics batch;
  {
    const c10::AutoGradMode no_grad(false);
    batch = of_all_ranks(wide.detach(), stack);
    check_values_per_channel(static_cast<int64_t>(batch.count), name);
    if (running_mean.defined()) {
      update_running(running_mean, running_var, batch, momentum);
    }
  }
  return Normalization::apply(wide, weight, bias, batch, epsilon, stack)
      .to(x.scalar_type());
}

}  // namespace tandem

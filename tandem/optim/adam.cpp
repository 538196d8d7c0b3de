#include <ATen/TensorOperators.h>
#include <ATen/ops/maximum.h>

#include <cmath>

#include "tandem/optim/element_wise.h"
#include "tandem/optim/power.h"

namespace tandem {

namespace {

// Update of one element. T is float or double.
//
// PyTorch divides by the root of the bias correction. This struct multiplies by the
// inverse of the root, which saves one of two divisions and may change the last bit.
template <typename T>
struct AdamElement {
  AdamElement(const OptimizerOptions& options, const GroupContext& context) {
    const double correction1 = 1 - power(options.beta1, context.step);
    const double correction2 = 1 - power(options.beta2, context.step);
    const bool decoupled = options.kind != OptimizerKind::adam;
    gradient_scale = static_cast<T>(context.gradient_scale);
    weight_decay = static_cast<T>(decoupled ? 0 : context.weight_decay);
    shrink = static_cast<T>(decoupled ? 1 - context.lr * context.weight_decay : 1);
    beta1 = static_cast<T>(options.beta1);
    one_minus_beta1 = static_cast<T>(1 - options.beta1);
    beta2 = static_cast<T>(options.beta2);
    one_minus_beta2 = static_cast<T>(1 - options.beta2);
    inverse_correction2_sqrt = static_cast<T>(1 / std::sqrt(correction2));
    eps = static_cast<T>(options.eps);
    minus_step_size = static_cast<T>(-(context.lr / correction1));
  }

  TANDEM_ALWAYS_INLINE void operator()(
      T grad, T& param, T& exp_avg, T& exp_avg_sq) const {
    const T g = decayed_gradient(grad, param, gradient_scale, weight_decay);
    const T m = average(g, exp_avg, exp_avg_sq);
    param = moved(param, m, exp_avg_sq);
  }

  // With amsgrad.
  TANDEM_ALWAYS_INLINE void operator()(
      T grad, T& param, T& exp_avg, T& exp_avg_sq, T& largest) const {
    const T g = decayed_gradient(grad, param, gradient_scale, weight_decay);
    const T m = average(g, exp_avg, exp_avg_sq);
    const T v = exp_avg_sq;
    largest = largest > v ? largest : v;
    param = moved(param, m, largest);
  }

  // Updates both averages and returns the first.
  TANDEM_ALWAYS_INLINE T average(T g, T& exp_avg, T& exp_avg_sq) const {
    exp_avg = beta1 * exp_avg + one_minus_beta1 * g;
    exp_avg_sq = beta2 * exp_avg_sq + one_minus_beta2 * g * g;
    return exp_avg;
  }

  TANDEM_ALWAYS_INLINE T moved(T param, T m, T v) const {
    const T denominator = std::sqrt(v) * inverse_correction2_sqrt + eps;
    return param * shrink + minus_step_size * m / denominator;
  }

  T gradient_scale;
  // Adam adds weight_decay times the parameter to the gradient. AdamW multiplies the
  // parameter by `shrink`.
  T weight_decay;
  T shrink;
  T beta1;
  T one_minus_beta1;
  T beta2;
  T one_minus_beta2;
  T inverse_correction2_sqrt;
  T eps;
  T minus_step_size;
};

class Adam final : public Algorithm {
 public:
  explicit Adam(const OptimizerOptions& options)
      : Algorithm(
            options,
            options.amsgrad
                ? std::vector<std::string>{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
                : std::vector<std::string>{"exp_avg", "exp_avg_sq"}) {
    check_betas(options);
  }

  void update_elements(const Elements& elements, const GroupContext& context) override {
    with_dtype(elements.dtype, [&](auto zero) {
      using T = decltype(zero);
      const AdamElement<T> element(options_, context);
      if (options_.amsgrad) {
        update_each<3, T>(elements, element);
      } else {
        update_each<2, T>(elements, element);
      }
    });
  }

  void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) override {
    const AdamElement<double> f(options_, context);
    const auto g =
        decayed_gradient(tensors.grad, tensors.param, f.gradient_scale, f.weight_decay);
    const auto& m = tensors.states[0];
    auto v = tensors.states[1];
    m.mul_(f.beta1).add_(g, f.one_minus_beta1);
    v.mul_(f.beta2).addcmul_(g, g, f.one_minus_beta2);
    if (options_.amsgrad) {
      const auto& largest = tensors.states[2];
      v = largest.copy_(at::maximum(largest, v));
    }
    const auto denominator = v.sqrt().mul_(f.inverse_correction2_sqrt).add_(f.eps);
    tensors.param.mul_(f.shrink).addcdiv_(m, denominator, f.minus_step_size);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::adam> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<Adam>(options);
}

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::adamw> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<Adam>(options);
}

}  // namespace tandem

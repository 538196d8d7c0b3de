#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>

#include "tandem/optim/element_wise.h"
#include "tandem/optim/power.h"

namespace tandem {

/// The averages of gradients and of their squares that Adam and related optimizers
/// keep, for an Element of update_each(). T is float or double.
template <typename T>
struct Moments {
  /// `decoupled`: weight decay multiplies the parameter by `shrink`, as in AdamW;
  /// otherwise it adds weight_decay times the parameter to the gradient.
  Moments(const OptimizerOptions& options, const GroupContext& context, bool decoupled)
      : gradient_scale(static_cast<T>(context.gradient_scale)),
        weight_decay(static_cast<T>(decoupled ? 0 : context.weight_decay)),
        shrink(static_cast<T>(decoupled ? 1 - context.lr * context.weight_decay : 1)),
        beta1(static_cast<T>(options.beta1)),
        one_minus_beta1(static_cast<T>(1 - options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        one_minus_beta2(static_cast<T>(1 - options.beta2)),
        inverse_correction2_sqrt(
            static_cast<T>(1 / std::sqrt(1 - power(options.beta2, context.step)))),
        eps(static_cast<T>(options.eps)) {}

  TANDEM_ALWAYS_INLINE T gradient(T grad, T param) const {
    return decayed_gradient(grad, param, gradient_scale, weight_decay);
  }

  /// Updates both averages by a gradient and returns the first.
  TANDEM_ALWAYS_INLINE T average(T g, T& exp_avg, T& exp_avg_sq) const {
    exp_avg = beta1 * exp_avg + one_minus_beta1 * g;
    exp_avg_sq = beta2 * exp_avg_sq + one_minus_beta2 * g * g;
    return exp_avg;
  }

  /// Returns the root of the average `v` of squares without its bias, plus eps.
  TANDEM_ALWAYS_INLINE T size(T v) const {
    return std::sqrt(v) * inverse_correction2_sqrt + eps;
  }

  // The same functions for tensors, computed with LibTorch's operators.

  at::Tensor gradient(const at::Tensor& grad, const at::Tensor& param) const {
    return decayed_gradient(grad, param, gradient_scale, weight_decay);
  }
  void average(
      const at::Tensor& g, const at::Tensor& exp_avg,
      const at::Tensor& exp_avg_sq) const {
    exp_avg.mul_(beta1).add_(g, one_minus_beta1);
    exp_avg_sq.mul_(beta2).addcmul_(g, g, one_minus_beta2);
  }
  at::Tensor size(const at::Tensor& v) const {
    return v.sqrt().mul_(inverse_correction2_sqrt).add_(eps);
  }

  T gradient_scale;
  T weight_decay;
  T shrink;
  T beta1;
  T one_minus_beta1;
  T beta2;
  T one_minus_beta2;
  T inverse_correction2_sqrt;
  T eps;
};

}  // namespace tandem

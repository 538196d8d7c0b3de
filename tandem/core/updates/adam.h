#pragma once

#include <cmath>

#include "tandem/core/updates/group_context.h"
#include "tandem/core/updates/power.h"

namespace tandem {

struct AdamSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  // AdamW.
  bool decoupled = false;
};

/// What is the same for all elements of a step, T: float or double.
template <typename T>
struct AdamFactors {
  T gradient_scale;
  // Adam adds this times the parameter to the gradient; AdamW multiplies the
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

template <typename T>
TANDEM_ALWAYS_INLINE AdamFactors<T> factors_of(
    const AdamSettings& settings, const GroupContext& context) {
  const double correction1 = 1 - power(settings.beta1, context.step);
  const double correction2 = 1 - power(settings.beta2, context.step);
  const double shrink = settings.decoupled ? 1 - context.lr * context.weight_decay : 1;
  return {
      static_cast<T>(context.gradient_scale),
      static_cast<T>(settings.decoupled ? 0 : context.weight_decay),
      static_cast<T>(shrink),
      static_cast<T>(settings.beta1),
      static_cast<T>(1 - settings.beta1),
      static_cast<T>(settings.beta2),
      static_cast<T>(1 - settings.beta2),
      static_cast<T>(1 / std::sqrt(correction2)),
      static_cast<T>(settings.eps),
      static_cast<T>(-(context.lr / correction1))};
}

/// `largest` is read and written with amsgrad only; it may be null else.
///
/// PyTorch divides by the root of the correction; its inverse as a factor differs in
/// the last bit and saves one of two divisions.
template <bool amsgrad, typename T>
TANDEM_ALWAYS_INLINE void adam_element(
    T grad, T& param, T& exp_avg, T& exp_avg_sq, T* largest, const AdamFactors<T>& f) {
  T p = param;
  const T g = decayed_gradient(grad, p, f.gradient_scale, f.weight_decay);
  p *= f.shrink;
  const T m = f.beta1 * exp_avg + f.one_minus_beta1 * g;
  T v = f.beta2 * exp_avg_sq + f.one_minus_beta2 * g * g;
  exp_avg = m;
  exp_avg_sq = v;
  if (amsgrad) {
    v = *largest > v ? *largest : v;
    *largest = v;
  }
  const T denominator = std::sqrt(v) * f.inverse_correction2_sqrt + f.eps;
  param = p + f.minus_step_size * m / denominator;
}

}  // namespace tandem

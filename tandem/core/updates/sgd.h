#pragma once

#include "tandem/core/updates/group_context.h"

namespace tandem {

struct SgdSettings {
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
};

/// What is the same for all elements of a step, T: float or double.
template <typename T>
struct SgdFactors {
  T gradient_scale;
  T weight_decay;
  T momentum;
  T undamped;
  T minus_lr;
  bool first_step;
  bool nesterov;
};

template <typename T>
TANDEM_ALWAYS_INLINE SgdFactors<T> factors_of(
    const SgdSettings& settings, const GroupContext& context) {
  return {
      static_cast<T>(context.gradient_scale),
      static_cast<T>(context.weight_decay),
      static_cast<T>(settings.momentum),
      static_cast<T>(1 - settings.dampening),
      static_cast<T>(-context.lr),
      context.step == 1,
      settings.nesterov};
}

/// Without momentum.
template <typename T>
TANDEM_ALWAYS_INLINE void sgd_element(T grad, T& param, const SgdFactors<T>& f) {
  param += f.minus_lr * decayed_gradient(grad, param, f.gradient_scale, f.weight_decay);
}

/// With momentum, whose buffer the first step fills.
template <typename T>
TANDEM_ALWAYS_INLINE void sgd_element(
    T grad, T& param, T& buffer, const SgdFactors<T>& f) {
  const T g = decayed_gradient(grad, param, f.gradient_scale, f.weight_decay);
  const T b = f.first_step ? g : f.momentum * buffer + f.undamped * g;
  buffer = b;
  param += f.minus_lr * (f.nesterov ? g + f.momentum * b : b);
}

}  // namespace tandem

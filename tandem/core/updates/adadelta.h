#pragma once

#include <cmath>

#include "tandem/core/updates/group_context.h"

namespace tandem {

struct AdadeltaSettings {
  double rho = 0.9;
  double eps = 1e-6;
};

/// What is the same for all elements of a step, T: float or double.
template <typename T>
struct AdadeltaFactors {
  T gradient_scale;
  T weight_decay;
  T rho;
  T one_minus_rho;
  T eps;
  T minus_lr;
};

template <typename T>
TANDEM_ALWAYS_INLINE AdadeltaFactors<T> factors_of(
    const AdadeltaSettings& settings, const GroupContext& context) {
  return {static_cast<T>(context.gradient_scale), static_cast<T>(context.weight_decay),
          static_cast<T>(settings.rho),           static_cast<T>(1 - settings.rho),
          static_cast<T>(settings.eps),           static_cast<T>(-context.lr)};
}

/// PyTorch divides one root by another. The root of the quotient differs in the last
/// bit and costs one root, not two: with two the pass waits for them, not for memory.
/// (In float32 the quotient leaves the range of normal numbers for gradients above
/// 1e16.)
template <typename T>
TANDEM_ALWAYS_INLINE void adadelta_element(
    T grad, T& param, T& square_avg, T& acc_delta, const AdadeltaFactors<T>& f) {
  const T g = decayed_gradient(grad, param, f.gradient_scale, f.weight_decay);
  const T s = f.rho * square_avg + f.one_minus_rho * g * g;
  const T a = acc_delta;
  const T delta = std::sqrt((a + f.eps) / (s + f.eps)) * g;
  square_avg = s;
  acc_delta = f.rho * a + f.one_minus_rho * delta * delta;
  param += f.minus_lr * delta;
}

}  // namespace tandem

#pragma once

#include <cstdint>

#include "tandem/core/simd.h"

namespace tandem {

/// One optimizer step as one parameter group sees it.
struct GroupContext {
  double lr = 0;
  double weight_decay = 0;
  double gradient_scale = 1;
  // Counts from 1.
  int64_t step = 1;
};

/// What every optimizer makes of a gradient first. `weight_decay` is the same for all
/// elements: compilers take the condition out of a loop, which they then vectorise.
template <typename T>
TANDEM_ALWAYS_INLINE T
decayed_gradient(T grad, T param, T gradient_scale, T weight_decay) {
  T g = gradient_scale * grad;
  if (weight_decay != 0) {
    g += weight_decay * param;
  }
  return g;
}

}  // namespace tandem

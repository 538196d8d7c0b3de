#pragma once

// The vectors that transforms and products work on: a pixel of a block of channels.
// Compiled for AVX-512 only, see lanes.h.

#include "tandem/kernels/lanes.h"

namespace tandem::TANDEM_ISA {

namespace {

constexpr int kLanes = 16;

using Floats = Lanes<kLanes>::Floats;

TANDEM_ALWAYS_INLINE Floats load(const float* from) {
  Floats value;
  Lanes<kLanes>::load(value, from);
  return value;
}
TANDEM_ALWAYS_INLINE void store(const Floats& value, float* to) {
  Lanes<kLanes>::store(value, to);
}

}  // namespace

}  // namespace tandem::TANDEM_ISA

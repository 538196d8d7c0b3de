#pragma once

// The vectors that products and Winograd's transforms work on.
// Compiled for AVX-512, AVX2 and NEON, see lanes.h.

#include "tandem/kernels/lanes.h"

namespace tandem::TANDEM_ISA {

namespace {

constexpr int kLanes = kWidest;

// The channels of an image's block: a vector, or two on NEON, so that other layers find
// the blocks that they like there too.
constexpr int kBlock = kLanes == 16 ? 16 : 8;

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

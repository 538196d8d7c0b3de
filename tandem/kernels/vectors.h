#pragma once

// Vectors of products and Winograd's transforms. Compiled for AVX-512, AVX2 and NEON
// (lanes.h).

#include "tandem/kernels/lanes.h"

namespace tandem::TANDEM_ISA {

namespace {

constexpr int kLanes = kWidest;

// Number of channels in an image's block: one vector, on NEON two, so that other layers
// get the blocks that suit them.
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

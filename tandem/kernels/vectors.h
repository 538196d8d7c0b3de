#pragma once

// Vectors for products and Winograd's transforms. Source files that include this header
// are compiled once for each instruction set (lanes.h).

#include "tandem/kernels/lanes.h"

namespace tandem::TANDEM_ISA {

namespace {

constexpr int kLanes = kWidest;

// Number of channels in a block of an image: one vector, or two on NEON, because
// oneDNN's blocks have 8 or 16 channels.
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

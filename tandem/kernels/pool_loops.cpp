// Compiled once for each instruction set, see lanes.h.

#include "tandem/kernels/pool_loops.h"

#include <cstring>

#include "tandem/kernels/lanes.h"

namespace tandem::TANDEM_ISA {

namespace {

// The windows of L neighbouring lanes; `pixel` and `row` are steps in the input. Three
// vectors are in use, and each input is read once, so neither registers nor cache run
// short.
template <int L, typename T>
TANDEM_ALWAYS_INLINE void pool_lanes(
    int64_t kernel, int64_t pixel, int64_t row, bool relu, const T* in, T* out,
    uint8_t* which) {
  using V = Lanes<L>;
  typename V::Floats best;
  typename V::Ints place = {};
  V::load(best, in);
  for (int32_t y = 0; y < kernel; ++y) {
    for (int32_t x = 0; x < kernel; ++x) {
      typename V::Floats value;
      V::load(value, in + y * row + x * pixel);
      const auto larger = (value > best) | (value != value);
      best = larger ? value : best;
      place = larger ? (typename V::Ints{} + (y * static_cast<int32_t>(kernel) + x))
                     : place;
    }
  }
  if (relu) {
    const auto cut = best <= 0;
    best = cut ? typename V::Floats{} : best;
    place = cut ? (typename V::Ints{} + kNoInput) : place;
  }
  V::store(best, out);
  const auto bytes = __builtin_convertvector(place, typename V::Bytes);
  std::memcpy(which, &bytes, sizeof(bytes));
}

template <int L, typename T>
TANDEM_ALWAYS_INLINE void spread_lanes(
    int64_t kernel, int64_t pixel, int64_t row, const uint8_t* which, const T* grad_out,
    T* grad_in) {
  using V = Lanes<L>;
  typename V::Bytes bytes;
  V::load_bits(bytes, which);
  const auto place = __builtin_convertvector(bytes, typename V::Ints);
  typename V::Floats grad;
  V::load(grad, grad_out);
  for (int32_t y = 0; y < kernel; ++y) {
    for (int32_t x = 0; x < kernel; ++x) {
      const auto here = place == y * static_cast<int32_t>(kernel) + x;
      V::store(here ? grad : typename V::Floats{}, grad_in + y * row + x * pixel);
    }
  }
}

// Calls `lanes(input offset, output offset)` for every L lanes of a plane's outputs.
template <int L, typename Lanes>
TANDEM_ALWAYS_INLINE void for_each_window(const PoolShape& s, Lanes&& lanes) {
  const int64_t row = s.width * s.lanes;
  for (int64_t y = 0; y < s.out_height(); ++y) {
    for (int64_t x = 0; x < s.out_width(); ++x) {
      const int64_t in = s.kernel * (y * row + x * s.lanes);
      const int64_t out = (y * s.out_width() + x) * s.lanes;
      for (int64_t l = 0; l < s.lanes; l += L) {
        lanes(in + l, out + l);
      }
    }
  }
}

template <int L, typename T>
TANDEM_ALWAYS_INLINE void pool_plane(
    const PoolShape& s, bool relu, const T* in, T* out, uint8_t* which) {
  for_each_window<L>(
      s, [&](int64_t from, int64_t to) __attribute__((always_inline)) {
        pool_lanes<L>(
            s.kernel, s.lanes, s.width * s.lanes, relu, in + from, out + to,
            which + to);
      });
}

template <int L, typename T>
TANDEM_ALWAYS_INLINE void spread_plane(
    const PoolShape& s, const uint8_t* which, const T* grad_out, T* grad_in) {
  const int64_t row = s.width * s.lanes;
  if (s.height % s.kernel != 0 || s.width % s.kernel != 0) {
    std::memset(grad_in, 0, static_cast<size_t>(s.height * row) * sizeof(T));
  }
  for_each_window<L>(
      s, [&](int64_t to, int64_t from) __attribute__((always_inline)) {
        spread_lanes<L>(
            s.kernel, s.lanes, row, which + from, grad_out + from, grad_in + to);
      });
}

template <typename T>
void pool_any(const PoolShape& s, bool relu, const T* in, T* out, uint8_t* which) {
  if (kWidest == 16 && s.lanes % 16 != 0) {
    pool_plane<8>(s, relu, in, out, which);
  } else {
    pool_plane<kWidest>(s, relu, in, out, which);
  }
}

template <typename T>
void spread_any(
    const PoolShape& s, const uint8_t* which, const T* grad_out, T* grad_in) {
  if (kWidest == 16 && s.lanes % 16 != 0) {
    spread_plane<8>(s, which, grad_out, grad_in);
  } else {
    spread_plane<kWidest>(s, which, grad_out, grad_in);
  }
}

}  // namespace

void max_pool_plane(
    const PoolShape& shape, bool relu, const float* in, float* out, uint8_t* which) {
  pool_any(shape, relu, in, out, which);
}

void max_pool_plane(
    const PoolShape& shape, bool relu, const Bf16* in, Bf16* out, uint8_t* which) {
  pool_any(shape, relu, in, out, which);
}

void spread_plane(
    const PoolShape& shape, const uint8_t* which, const float* grad_out,
    float* grad_in) {
  spread_any(shape, which, grad_out, grad_in);
}

void spread_plane(
    const PoolShape& shape, const uint8_t* which, const Bf16* grad_out, Bf16* grad_in) {
  spread_any(shape, which, grad_out, grad_in);
}

}  // namespace tandem::TANDEM_ISA

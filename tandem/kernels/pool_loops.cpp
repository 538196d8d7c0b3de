// Compiled once for each instruction set (lanes.h).

#include "tandem/kernels/pool_loops.h"

#include <cstring>

#include "tandem/kernels/lanes.h"

namespace tandem::TANDEM_ISA {

namespace {

// Converts 32-bit lanes to 16 bits and then to 8 bits. On AVX2, GCC 12 would convert
// from 32 to 8 bits lane by lane.
template <int L>
TANDEM_ALWAYS_INLINE void to_bytes(
    const typename Lanes<L>::Ints& from, typename Lanes<L>::Bytes& to) {
  using V = Lanes<L>;
  to = __builtin_convertvector(
      __builtin_convertvector(from, typename V::Halves), typename V::Bytes);
}
template <int L>
TANDEM_ALWAYS_INLINE void to_ints(
    const typename Lanes<L>::Bytes& from, typename Lanes<L>::Ints& to) {
  using V = Lanes<L>;
  to = __builtin_convertvector(
      __builtin_convertvector(from, typename V::Halves), typename V::Ints);
}

// Computes a window of L neighboring lanes. `pixel` and `row` are the distances between
// neighboring pixels and rows of the input, in elements. Uses three vectors and reads
// each input once.
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
  typename V::Bytes bytes;
  to_bytes<L>(place, bytes);
  std::memcpy(which, &bytes, sizeof(bytes));
}

template <int L, typename T>
TANDEM_ALWAYS_INLINE void spread_lanes(
    int64_t kernel, int64_t pixel, int64_t row, const uint8_t* which, const T* grad_out,
    T* grad_in) {
  using V = Lanes<L>;
  typename V::Bytes bytes;
  V::load_bits(bytes, which);
  typename V::Ints place;
  to_ints<L>(bytes, place);
  typename V::Floats grad;
  V::load(grad, grad_out);
  for (int32_t y = 0; y < kernel; ++y) {
    for (int32_t x = 0; x < kernel; ++x) {
      const auto here = place == y * static_cast<int32_t>(kernel) + x;
      V::store(here ? grad : typename V::Floats{}, grad_in + y * row + x * pixel);
    }
  }
}

template <int L>
TANDEM_ALWAYS_INLINE void mean_lanes(
    int64_t kernel, int64_t pixel, int64_t row, const float* in, float* out) {
  using V = Lanes<L>;
  typename V::Floats sum = {};
  for (int64_t y = 0; y < kernel; ++y) {
    for (int64_t x = 0; x < kernel; ++x) {
      typename V::Floats value;
      V::load(value, in + y * row + x * pixel);
      sum += value;
    }
  }
  V::store(sum / static_cast<float>(kernel * kernel), out);
}

template <int L>
TANDEM_ALWAYS_INLINE void spread_mean_lanes(
    int64_t kernel, int64_t pixel, int64_t row, const float* grad_out, float* grad_in) {
  using V = Lanes<L>;
  typename V::Floats grad;
  V::load(grad, grad_out);
  grad /= static_cast<float>(kernel * kernel);
  for (int64_t y = 0; y < kernel; ++y) {
    for (int64_t x = 0; x < kernel; ++x) {
      V::store(grad, grad_in + y * row + x * pixel);
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

// K is the size of the windows, or 0 to use s.kernel.
template <int L, int K, typename T>
void pool_plane(const PoolShape& s, bool relu, const T* in, T* out, uint8_t* which) {
  const int64_t kernel = K > 0 ? K : s.kernel;
  for_each_window<L>(
      s, [&](int64_t from, int64_t to) __attribute__((always_inline)) {
        pool_lanes<L>(
            kernel, s.lanes, s.width * s.lanes, relu, in + from, out + to, which + to);
      });
}

// Sets the gradient to 0 if some pixels belong to no window.
template <typename T>
void clear_remainder(const PoolShape& s, T* grad_in) {
  if (s.height % s.kernel != 0 || s.width % s.kernel != 0) {
    const auto size = static_cast<size_t>(s.height * s.width * s.lanes);
    std::memset(grad_in, 0, size * sizeof(T));
  }
}

template <int L, int K, typename T>
void spread_plane(
    const PoolShape& s, const uint8_t* which, const T* grad_out, T* grad_in) {
  const int64_t kernel = K > 0 ? K : s.kernel;
  const int64_t row = s.width * s.lanes;
  clear_remainder(s, grad_in);
  for_each_window<L>(
      s, [&](int64_t to, int64_t from) __attribute__((always_inline)) {
        spread_lanes<L>(
            kernel, s.lanes, row, which + from, grad_out + from, grad_in + to);
      });
}

// Calls body(lanes, K) with both numbers as constants.
template <typename Body>
TANDEM_ALWAYS_INLINE void with_constants(const PoolShape& s, Body&& body) {
  const auto with_lanes = [&](auto kernel) {
    if (kWidest == 16 && s.lanes % 16 != 0) {
      body(Count<8>{}, kernel);
    } else {
      body(Count<kWidest>{}, kernel);
    }
  };
  s.kernel == 2 ? with_lanes(Count<2>{}) : with_lanes(Count<0>{});
}

template <typename T>
void pool_any(const PoolShape& s, bool relu, const T* in, T* out, uint8_t* which) {
  with_constants(s, [&](auto lanes, auto kernel) {
    pool_plane<decltype(lanes)::value, decltype(kernel)::value>(
        s, relu, in, out, which);
  });
}

template <typename T>
void spread_any(
    const PoolShape& s, const uint8_t* which, const T* grad_out, T* grad_in) {
  with_constants(s, [&](auto lanes, auto kernel) {
    spread_plane<decltype(lanes)::value, decltype(kernel)::value>(
        s, which, grad_out, grad_in);
  });
}

// Calls `body(lanes, kernel, input offset, output offset)` for each window, with the
// first two as constants where with_constants() has them.
template <typename Body>
TANDEM_ALWAYS_INLINE void for_each_constant_window(const PoolShape& s, Body&& body) {
  with_constants(s, [&](auto lanes, auto kernel) {
    constexpr int kSize = decltype(kernel)::value;
    const int64_t size = kSize > 0 ? kSize : s.kernel;
    for_each_window<decltype(lanes)::value>(
        s, [&](int64_t in, int64_t out)
               __attribute__((always_inline)) { body(lanes, size, in, out); });
  });
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

void mean_plane(const PoolShape& shape, const float* in, float* out) {
  const int64_t row = shape.width * shape.lanes;
  for_each_constant_window(
      shape, [&](auto lanes, int64_t kernel, int64_t from, int64_t to)
                 __attribute__((always_inline)) {
                   mean_lanes<decltype(lanes)::value>(
                       kernel, shape.lanes, row, in + from, out + to);
                 });
}

void spread_mean_plane(const PoolShape& shape, const float* grad_out, float* grad_in) {
  const int64_t row = shape.width * shape.lanes;
  clear_remainder(shape, grad_in);
  for_each_constant_window(
      shape, [&](auto lanes, int64_t kernel, int64_t to, int64_t from)
                 __attribute__((always_inline)) {
                   spread_mean_lanes<decltype(lanes)::value>(
                       kernel, shape.lanes, row, grad_out + from, grad_in + to);
                 });
}

}  // namespace tandem::TANDEM_ISA

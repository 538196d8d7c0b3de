// Compiled once for each instruction set (lanes.h).

#include "tandem/kernels/small_conv_loops.h"

#include "tandem/kernels/lanes.h"

namespace tandem::TANDEM_ISA {

namespace {

// Computes the distance of each tap from the window's first input, in elements.
template <int Taps>
TANDEM_ALWAYS_INLINE void place_taps(
    const SmallConvShape& s, int64_t (&offsets)[Taps]) {
  int tap = 0;
  for (int64_t c = 0; c < s.channels; ++c) {
    for (int64_t y = 0; y < s.kernel; ++y) {
      for (int64_t x = 0; x < s.kernel; ++x) {
        offsets[tap++] = (c * s.height + y) * s.width + x;
      }
    }
  }
}

// Computes P neighboring pixels of one group of L output channels. For 8 pixels, 8
// sums, a vector of weights and a vector with one input in all lanes need 10 of AVX2's
// 16 registers. A group's weights, at most 27 vectors, take 1.7 KiB of L1.
template <int L, int Taps, int P, typename T>
TANDEM_ALWAYS_INLINE void convolve_pixels(
    const int64_t (&offsets)[Taps], int64_t pixel_stride, int64_t out_channels,
    bool relu, const float* in, const float* weights, const float* bias, T* out) {
  using V = Lanes<L>;
  typename V::Floats sums[P];
  for (int p = 0; p < P; ++p) {
    V::load(sums[p], bias);
  }
  for (int t = 0; t < Taps; ++t) {
    typename V::Floats weight;
    V::load(weight, weights + t * out_channels);
    for (int p = 0; p < P; ++p) {
      sums[p] += weight * in[offsets[t] + p];
    }
  }
  for (int p = 0; p < P; ++p) {
    const auto cut = sums[p] <= 0;
    V::store(
        relu ? (cut ? typename V::Floats{} : sums[p]) : sums[p],
        out + p * pixel_stride);
  }
}

template <int L, int Taps, typename T>
void convolve(
    const SmallConvShape& s, bool relu, const float* in, const float* weights,
    const float* bias, T* out) {
  constexpr int kPixels = 8;
  int64_t offsets[Taps];
  place_taps(s, offsets);
  for (int64_t y = 0; y < s.out_height(); ++y) {
    for (int64_t g = 0; g < s.out_channels / L; ++g) {
      const float* row = in + y * s.width;
      T* to = out + y * s.out_width() * s.pixel_stride + s.group_offsets[g];
      const auto pixels = [&](auto count, int64_t x) {
        convolve_pixels<L, Taps, decltype(count)::value>(
            offsets, s.pixel_stride, s.out_channels, relu, row + x, weights + g * L,
            bias + g * L, to + x * s.pixel_stride);
      };
      int64_t x = 0;
      for (; x + kPixels <= s.out_width(); x += kPixels) {
        pixels(Count<kPixels>{}, x);
      }
      if (s.out_width() - x >= kPixels / 2 && s.out_width() >= kPixels) {
        // Computes some pixels again. This is faster than to compute the remaining
        // pixels one by one.
        pixels(Count<kPixels>{}, s.out_width() - kPixels);
        continue;
      }
      for (; x < s.out_width(); ++x) {
        pixels(Count<1>{}, x);
      }
    }
  }
}

// Sums the gradients of the taps [First, First + N) in one pass over the pixels. The N
// sums, the sum for the bias and one value need N + 2 vectors. They stay in registers
// only if the compiler unrolls the loop over the taps.
template <int L, int Taps, int First, int N, typename T>
void add_up_taps(
    const SmallConvShape& s, int64_t group, const float* in, const T* output,
    const T* grad, float* sums) {
  using V = Lanes<L>;
  int64_t offsets[Taps];
  place_taps(s, offsets);
  typename V::Floats total[N] = {};
  typename V::Floats bias = {};
  for (int64_t y = 0; y < s.out_height(); ++y) {
    for (int64_t x = 0; x < s.out_width(); ++x) {
      const int64_t at =
          (y * s.out_width() + x) * s.pixel_stride + s.group_offsets[group];
      typename V::Floats value;
      V::load(value, grad + at);
      if (output != nullptr) {
        typename V::Floats kept;
        V::load(kept, output + at);
        value = kept <= 0 ? typename V::Floats{} : value;
      }
      bias += value;
      const float* window = in + y * s.width + x;
#pragma GCC unroll 32
      for (int t = 0; t < N; ++t) {
        total[t] += value * window[offsets[First + t]];
      }
    }
  }
  for (int t = 0; t < N; ++t) {
    V::store(total[t], sums + (First + t) * s.out_channels + group * L);
  }
  V::store(bias, sums + Taps * s.out_channels + group * L);
}

// 32 registers hold the sums of all taps. With 16 registers, 25 taps need two passes,
// and 27 taps need three.
template <int L, int Taps, typename T>
TANDEM_ALWAYS_INLINE void add_up(
    const SmallConvShape& s, int64_t group, const float* in, const T* output,
    const T* grad, float* sums) {
  if constexpr (kRegisters == 32 || Taps == 9) {
    add_up_taps<L, Taps, 0, Taps>(s, group, in, output, grad, sums);
  } else if constexpr (Taps == 25) {
    add_up_taps<L, Taps, 0, 13>(s, group, in, output, grad, sums);
    add_up_taps<L, Taps, 13, 12>(s, group, in, output, grad, sums);
  } else {
    add_up_taps<L, Taps, 0, 9>(s, group, in, output, grad, sums);
    add_up_taps<L, Taps, 9, 9>(s, group, in, output, grad, sums);
    add_up_taps<L, Taps, 18, 9>(s, group, in, output, grad, sums);
  }
}

// Calls `body` with the number of taps as a constant.
template <typename Body>
TANDEM_ALWAYS_INLINE void with_taps(const SmallConvShape& s, Body&& body) {
  switch (s.taps()) {
    case 9:
      return body(Count<9>{});
    case 25:
      return body(Count<25>{});
    default:
      return body(Count<27>{});
  }
}

// Calls `body` with the number of lanes as a constant.
template <typename Body>
TANDEM_ALWAYS_INLINE void with_lanes(const SmallConvShape& s, Body&& body) {
  if (kWidest == 16 && s.lanes == 8) {
    body(Count<8>{});
  } else {
    body(Count<kWidest>{});
  }
}

template <typename T>
void convolve_any(
    const SmallConvShape& s, bool relu, const float* in, const float* weights,
    const float* bias, T* out) {
  with_lanes(s, [&](auto lanes) {
    with_taps(s, [&](auto taps) {
      convolve<decltype(lanes)::value, decltype(taps)::value>(
          s, relu, in, weights, bias, out);
    });
  });
}

template <typename T>
void add_up_any(
    const SmallConvShape& s, const float* in, const T* output, const T* grad,
    float* sums) {
  with_lanes(s, [&](auto lanes) {
    with_taps(s, [&](auto taps) {
      for (int64_t g = 0; g < s.out_channels / decltype(lanes)::value; ++g) {
        add_up<decltype(lanes)::value, decltype(taps)::value>(
            s, g, in, output, grad, sums);
      }
    });
  });
}

}  // namespace

void small_conv(
    const SmallConvShape& shape, bool relu, const float* in, const float* weights,
    const float* bias, float* out) {
  convolve_any(shape, relu, in, weights, bias, out);
}

void small_conv(
    const SmallConvShape& shape, bool relu, const float* in, const float* weights,
    const float* bias, Bf16* out) {
  convolve_any(shape, relu, in, weights, bias, out);
}

void small_conv_gradient(
    const SmallConvShape& shape, const float* in, const float* output,
    const float* grad, float* sums) {
  add_up_any(shape, in, output, grad, sums);
}

void small_conv_gradient(
    const SmallConvShape& shape, const float* in, const Bf16* output, const Bf16* grad,
    float* sums) {
  add_up_any(shape, in, output, grad, sums);
}

}  // namespace tandem::TANDEM_ISA

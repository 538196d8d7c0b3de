// Compiled once for each instruction set (lanes.h).

#include "tandem/kernels/norm_loops.h"

#include "tandem/kernels/lanes.h"

namespace tandem::TANDEM_ISA {

namespace {

// K neighboring vectors of L lanes.
template <int L, int K>
struct Row {
  using V = Lanes<L>;
  using Floats = typename V::Floats;
  static constexpr int vectors = K;

  template <typename T>
  TANDEM_ALWAYS_INLINE void load(const T* from) {
    for (int k = 0; k < K; ++k) {
      V::load(part[k], from + k * L);
    }
  }
  template <typename T>
  TANDEM_ALWAYS_INLINE void store(T* to) const {
    for (int k = 0; k < K; ++k) {
      V::store(part[k], to + k * L);
    }
  }

  Floats part[K] = {};
};

// Calls body(row, first lane) for rows of 4, 2 or 1 vectors, whichever is the largest
// number that divides a plane's lanes. With one vector per row, each addition would
// wait for the previous addition. The sums of more than four vectors do not fit into
// the registers.
template <typename Body>
TANDEM_ALWAYS_INLINE void for_rows(const NormPlane& plane, Body&& body) {
  const auto of_width = [&](auto lanes, auto vectors) {
    constexpr int width = decltype(lanes)::value * decltype(vectors)::value;
    for (int64_t lane = 0; lane < plane.lanes; lane += width) {
      body(Row<decltype(lanes)::value, decltype(vectors)::value>{}, lane);
    }
  };
  const auto of_lanes = [&](auto lanes) {
    const int64_t vectors = plane.lanes / decltype(lanes)::value;
    if (vectors % 4 == 0) {
      of_width(lanes, Count<4>{});
    } else if (vectors % 2 == 0) {
      of_width(lanes, Count<2>{});
    } else {
      of_width(lanes, Count<1>{});
    }
  };
  if (kWidest == 16 && plane.lanes % 16 != 0) {
    of_lanes(Count<8>{});
  } else {
    of_lanes(Count<kWidest>{});
  }
}

// Loads the gradient of one row, with 0 where the ReLU's output is 0.
template <int L, int K, typename T>
TANDEM_ALWAYS_INLINE void load_gradient(
    const T* grad, const T* out, int64_t at, Row<L, K>& into) {
  into.load(grad + at);
  if (out == nullptr) {
    return;
  }
  Row<L, K> value;
  value.load(out + at);
  for (int k = 0; k < K; ++k) {
    into.part[k] = value.part[k] > 0 ? into.part[k] : typename Row<L, K>::Floats{};
  }
}

// Number of pixels whose values are added before their sum is added to a Total.
constexpr int64_t kRun = 16;

// A sum of sums of runs, with compensation for its rounding errors: one rounding error
// remains for any number of runs (Kahan, 1965).
template <typename Row>
struct Total {
  Row sum;
  Row lost;

  TANDEM_ALWAYS_INLINE void add(const Row& run) {
    for (int k = 0; k < Row::vectors; ++k) {
      const auto more = run.part[k] - lost.part[k];
      const auto next = sum.part[k] + more;
      lost.part[k] = (next - sum.part[k]) - more;
      sum.part[k] = next;
    }
  }
};

// Calls body(first pixel, end) for each run.
template <typename Body>
TANDEM_ALWAYS_INLINE void for_runs(const NormPlane& plane, Body&& body) {
  for (int64_t first = 0; first < plane.pixels; first += kRun) {
    body(first, first + kRun < plane.pixels ? first + kRun : plane.pixels);
  }
}

template <typename T>
void moments(const NormPlane& plane, const T* in, float* mean, float* squares) {
  const float share = 1.0F / static_cast<float>(plane.pixels);
  for_rows(plane, [&](auto row, int64_t lane) {
    Total<decltype(row)> sums;
    for_runs(plane, [&](int64_t first, int64_t end) {
      auto sum = row;
      for (int64_t i = first; i < end; ++i) {
        auto value = row;
        value.load(in + i * plane.lanes + lane);
        for (int k = 0; k < row.vectors; ++k) {
          sum.part[k] += value.part[k];
        }
      }
      sums.add(sum);
    });
    for (auto& part : sums.sum.part) {
      part *= share;
    }
    Total<decltype(row)> all_squares;
    for_runs(plane, [&](int64_t first, int64_t end) {
      auto square = row;
      for (int64_t i = first; i < end; ++i) {
        auto value = row;
        value.load(in + i * plane.lanes + lane);
        for (int k = 0; k < row.vectors; ++k) {
          const auto distance = value.part[k] - sums.sum.part[k];
          square.part[k] += distance * distance;
        }
      }
      all_squares.add(square);
    });
    sums.sum.store(mean + lane);
    all_squares.sum.store(squares + lane);
  });
}

template <typename T>
void forward(
    const NormPlane& plane, const NormChannels& channels, bool relu, const T* in,
    T* out) {
  for_rows(plane, [&](auto row, int64_t lane) {
    auto mean = row;
    auto scale = row;
    auto bias = row;
    mean.load(channels.mean + lane);
    scale.load(channels.scale + lane);
    bias.load(channels.bias + lane);
    for (int64_t i = 0; i < plane.pixels; ++i) {
      auto value = row;
      value.load(in + i * plane.lanes + lane);
      for (int k = 0; k < row.vectors; ++k) {
        auto& part = value.part[k];
        part = (part - mean.part[k]) * scale.part[k] + bias.part[k];
        // Keeps NaN.
        part = relu ? (part < 0 ? typename decltype(value)::Floats{} : part) : part;
      }
      value.store(out + i * plane.lanes + lane);
    }
  });
}

template <typename T>
void gradient_sums(
    const NormPlane& plane, const NormChannels& channels, const T* in, const T* out,
    const T* grad, float* sums, float* products) {
  for_rows(plane, [&](auto row, int64_t lane) {
    auto mean = row;
    mean.load(channels.mean + lane);
    Total<decltype(row)> all;
    Total<decltype(row)> all_products;
    for_runs(plane, [&](int64_t first, int64_t end) {
      auto sum = row;
      auto product = row;
      for (int64_t i = first; i < end; ++i) {
        const int64_t at = i * plane.lanes + lane;
        auto value = row;
        auto gradient = row;
        value.load(in + at);
        load_gradient(grad, out, at, gradient);
        for (int k = 0; k < row.vectors; ++k) {
          sum.part[k] += gradient.part[k];
          product.part[k] += gradient.part[k] * (value.part[k] - mean.part[k]);
        }
      }
      all.add(sum);
      all_products.add(product);
    });
    all.sum.store(sums + lane);
    all_products.sum.store(products + lane);
  });
}

template <typename T>
void backward(
    const NormPlane& plane, const NormChannels& channels, const T* in, const T* out,
    const T* grad, T* grad_in) {
  for_rows(plane, [&](auto row, int64_t lane) {
    auto mean = row;
    auto scale = row;
    auto mean_grad = row;
    auto slope = row;
    mean.load(channels.mean + lane);
    scale.load(channels.scale + lane);
    mean_grad.load(channels.mean_grad + lane);
    slope.load(channels.slope + lane);
    for (int64_t i = 0; i < plane.pixels; ++i) {
      const int64_t at = i * plane.lanes + lane;
      auto value = row;
      auto gradient = row;
      value.load(in + at);
      load_gradient(grad, out, at, gradient);
      for (int k = 0; k < row.vectors; ++k) {
        gradient.part[k] =
            scale.part[k] * (gradient.part[k] - mean_grad.part[k] -
                             (value.part[k] - mean.part[k]) * slope.part[k]);
      }
      gradient.store(grad_in + at);
    }
  });
}

}  // namespace

#define TANDEM_NORM_LOOPS_OF(T)                                                        \
  void norm_moments(                                                                   \
      const NormPlane& plane, const T* in, float* mean, float* squares) {              \
    moments(plane, in, mean, squares);                                                 \
  }                                                                                    \
  void norm_forward(                                                                   \
      const NormPlane& plane, const NormChannels& channels, bool relu, const T* in,    \
      T* out) {                                                                        \
    forward(plane, channels, relu, in, out);                                           \
  }                                                                                    \
  void norm_gradient_sums(                                                             \
      const NormPlane& plane, const NormChannels& channels, const T* in, const T* out, \
      const T* grad, float* sums, float* products) {                                   \
    gradient_sums(plane, channels, in, out, grad, sums, products);                     \
  }                                                                                    \
  void norm_backward(                                                                  \
      const NormPlane& plane, const NormChannels& channels, const T* in, const T* out, \
      const T* grad, T* grad_in) {                                                     \
    backward(plane, channels, in, out, grad, grad_in);                                 \
  }
TANDEM_NORM_LOOPS_OF(float)
TANDEM_NORM_LOOPS_OF(Bf16)
#undef TANDEM_NORM_LOOPS_OF

}  // namespace tandem::TANDEM_ISA

// Products of matrices by warps, against a plain triple loop; and what the emulator
// finds wrong with them.

#include "tandem/kernels/cuda/mma.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/core/expect.h"
#include "tests/cuda/orders.h"

namespace tandem::mma_test {

using cuda::launch;
using emulator::EmulatorError;
using testing::AllOf;
using testing::HasSubstr;

enum class Mistake { none, registers_of_a, lanes_of_b, columns_of_c };

// A 16 x 8 product with `depth` values along k: 8 of tf32, 16 of bf16.
template <int depth>
struct Matrices {
  float a[16][depth];
  float b[depth][8];
  float c[16][8];
};

template <int depth>
uint32_t word_of(const float* values, size_t step) {
  return depth == 8 ? cuda::to_tf32(values[0])
                    : cuda::to_bf16_pair(values[0], values[step]);
}

template <int depth>
void product_kernel(Matrices<depth>* matrices, Mistake mistake) {
  constexpr unsigned kPerWord = depth / 8;
  const unsigned g = threadIdx.x % 32 / 4;
  const unsigned t = threadIdx.x % 4;
  Matrices<depth>& own = matrices[threadIdx.x / 32];
  uint32_t a[4];
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned part = mistake == Mistake::registers_of_a ? i / 2 + i % 2 * 2 : i;
    a[i] = word_of<depth>(&own.a[g + part % 2 * 8][(t + part / 2 * 4) * kPerWord], 1);
  }
  uint32_t b[2];
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned word = mistake == Mistake::lanes_of_b ? 2 * t + i : t + 4 * i;
    b[i] = word_of<depth>(&own.b[word * kPerWord][g], 8);
  }
  float c[4];
  const unsigned first = mistake == Mistake::columns_of_c ? t : 2 * t;
  const unsigned step = mistake == Mistake::columns_of_c ? 4 : 1;
  const auto place = [&](unsigned i) -> float& {
    return own.c[g + i / 2 * 8][first + i % 2 * step];
  };
  for (unsigned i = 0; i < 4; ++i) {
    c[i] = place(i);
  }
  if (depth == 8) {
    cuda::mma_tf32(c, a, b);
  } else {
    cuda::mma_bf16(c, a, b);
  }
  for (unsigned i = 0; i < 4; ++i) {
    place(i) = c[i];
  }
}

template <int depth>
double worst_error(Mistake mistake) {
  constexpr unsigned kWarps = 3;
  std::mt19937 generator(7);
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<Matrices<depth>> matrices(kWarps);
  for (auto& one : matrices) {
    for (auto& row : one.a) {
      std::generate(
          std::begin(row), std::end(row), [&] { return distribution(generator); });
    }
    for (auto& row : one.b) {
      std::generate(
          std::begin(row), std::end(row), [&] { return distribution(generator); });
    }
    for (auto& row : one.c) {
      std::generate(
          std::begin(row), std::end(row), [&] { return distribution(generator); });
    }
  }
  const auto before = matrices;
  launch(
      "product", product_kernel<depth>, 1, 32 * kWarps, 0, nullptr, matrices.data(),
      mistake);
  double worst = 0;
  for (unsigned warp = 0; warp < kWarps; ++warp) {
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 8; ++j) {
        double expected = before[warp].c[i][j];
        for (int k = 0; k < depth; ++k) {
          expected += static_cast<double>(before[warp].a[i][k]) * before[warp].b[k][j];
        }
        worst = std::max(worst, std::abs(matrices[warp].c[i][j] - expected));
      }
    }
  }
  return worst;
}

// Of values below 1: half a unit of tf32's last place is 2^-12, of bf16's 2^-9; two
// rounded factors of each product.
constexpr double kTf32 = 8 * 0x1p-11;
constexpr double kBf16 = 16 * 0x1p-8;

TEST(WarpMatrix, ProductsAreThoseOfATripleLoop) {
  in_orders([] {
    EXPECT_LT(worst_error<8>(Mistake::none), kTf32);
    EXPECT_LT(worst_error<16>(Mistake::none), kBf16);
    // And not exact: operands are rounded.
    EXPECT_GT(worst_error<8>(Mistake::none), 1e-5);
    EXPECT_GT(worst_error<16>(Mistake::none), 1e-4);
  });
}

TEST(WarpMatrix, FragmentsInAnotherLayoutGiveOtherProducts) {
  in_orders([] {
    for (const auto mistake :
         {Mistake::registers_of_a, Mistake::lanes_of_b, Mistake::columns_of_c}) {
      EXPECT_GT(worst_error<8>(mistake), 0.1);
      EXPECT_GT(worst_error<16>(mistake), 0.1);
    }
  });
}

void product_of_some(unsigned missing, float* out) {
  float c[4] = {};
  const uint32_t a[4] = {};
  const uint32_t b[2] = {};
  if (threadIdx.x != missing) {
    cuda::mma_tf32(c, a, b);
  }
  out[threadIdx.x] = c[0];
}

void product_in_two_branches(float* out) {
  float c[4] = {};
  const uint32_t a[4] = {};
  const uint32_t b[2] = {};
  if (threadIdx.x < 16) {
    cuda::mma_bf16(c, a, b);
  } else {
    cuda::mma_bf16(c, a, b);
  }
  out[threadIdx.x] = c[0];
}

TEST(WarpMatrix, AProductThatNotAllLanesReachIsAnErrorWithItsLine) {
  in_orders([] {
    std::vector<float> out(64);
    EXPECT_THAT(
        error_of<EmulatorError>([&] {
          launch("some", product_of_some, 1, 64, 0, nullptr, 45u, out.data());
        }),
        AllOf(
            HasSubstr("kernel some"), HasSubstr("mma_tf32 in mma_test.cpp:"),
            HasSubstr("thread 45 has ended")));
    EXPECT_THAT(
        error_of<EmulatorError>([&] {
          launch("two", product_in_two_branches, 1, 32, 0, nullptr, out.data());
        }),
        AllOf(HasSubstr("kernel two"), HasSubstr("mma_bf16 in mma_test.cpp:")));
    EXPECT_THAT(
        error_of<EmulatorError>([&] {
          launch("half", product_of_some, 1, 48, 0, nullptr, 99u, out.data());
        }),
        HasSubstr("the block has no thread 48"));
  });
}

TEST(WarpMatrix, OperandsAreRoundedAsPtxSays) {
  const float one = 1;
  const auto bits = [](uint32_t word) { return emulator::value_of(word); };
  // tf32 has ten digits behind the point; ties away from zero.
  EXPECT_EQ(bits(cuda::to_tf32(one + 0x1p-11f)), 1 + 0x1p-10);
  EXPECT_EQ(bits(cuda::to_tf32(-one - 0x1p-11f)), -1 - 0x1p-10);
  EXPECT_EQ(bits(cuda::to_tf32(one + 0x1p-12f)), 1);
  // bf16 has seven; ties to even.
  EXPECT_EQ(cuda::to_bf16_pair(one + 0x1p-8f, 3 * 0x1p-8f + one), 0x3f823f80u);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(bits(cuda::to_tf32(-infinity)), -infinity);
  EXPECT_EQ(cuda::to_bf16_pair(infinity, -infinity), 0xff807f80u);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(bits(cuda::to_tf32(nan))));
  EXPECT_EQ(cuda::to_bf16_pair(nan, 0), 0x7fffu);
}

TEST(WarpMatrix, ProductsAreRefusedWhereTheGpuHasNone) {
  const auto require = [](int architecture) {
    emulator::code_architecture = architecture;
    const auto error = error_of<ConfigError>(
        [] { cuda::require_matrix_products("product", product_kernel<8>); });
    emulator::code_architecture = 90;
    return error;
  };
  EXPECT_THAT(
      require(75),
      AllOf(HasSubstr("kernel product"), HasSubstr("7.5"), HasSubstr("need 8.0")));
  EXPECT_EQ(require(80), "(no error)");
}

}  // namespace tandem::mma_test

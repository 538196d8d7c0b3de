// Products of wide matrices against LibTorch's in double precision.

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <string>

#include "tandem/kernels/isa.h"
#include "tandem/kernels/linear_loops.h"

namespace tandem::wide_product_test {

at::Tensor numbers(int64_t rows, int64_t columns, double first) {
  return (at::linspace(0, 700, rows * columns, at::kDouble) + first)
      .sin()
      .view({rows, columns});
}

#if defined(__aarch64__)
constexpr auto kMultiplyWide = &neon::multiply_wide;
#else
constexpr auto kMultiplyWide = &avx2::multiply_wide;
#endif

struct Case {
  const char* name;
  int64_t rows;
  int64_t columns;
  int64_t steps;
};

class WideProductOf : public testing::TestWithParam<Case> {};

TEST_P(WideProductOf, EqualsTheProductInDoublePrecision) {
  if (kernel_isa() == Isa::base) {
    GTEST_SKIP() << "no AVX2 here, or ONEDNN_MAX_CPU_ISA forbids it; scripts/test on a "
                    "CPU that has it";
  }
  const Case& c = GetParam();
  const auto a = numbers(c.rows, c.steps, 3);
  const auto b = numbers(c.steps, c.columns, 1);
  const auto b_floats = b.to(at::kFloat);
  const auto before = numbers(c.rows, c.columns, 2);
  const auto scratch = at::full({wide_product_scratch(c.steps)}, 0.0F);
  for (const bool transposed : {false, true}) {
    const auto a_floats = (transposed ? a.t() : a).to(at::kFloat).contiguous();
    for (const bool accumulate : {false, true}) {
      const auto sums = before.to(at::kFloat);
      const WideProduct product = {
          a_floats.data_ptr<float>(),
          transposed ? 1 : c.steps,
          transposed ? c.rows : 1,
          b_floats.data_ptr<float>(),
          sums.data_ptr<float>(),
          c.rows,
          c.columns,
          c.steps,
          accumulate};
      // Two parts, as with two threads.
      const int64_t middle = c.columns / kPanel / 2 * kPanel;
      kMultiplyWide(product, 0, middle, scratch.data_ptr<float>());
      kMultiplyWide(product, middle, c.columns, scratch.data_ptr<float>());
      const auto expected = accumulate ? a.matmul(b) + before : a.matmul(b);
      const double magnitude = a.abs().matmul(b.abs()).max().item<double>() + 1;
      EXPECT_LE((sums - expected).abs().max().item<double>(), 1e-6 * magnitude)
          << (transposed ? "transposed " : "") << (accumulate ? "accumulate" : "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, WideProductOf,
    testing::Values(
        Case{"one", 1, 8, 1}, Case{"rows_left_over", 11, 24, 5},
        Case{"rows_twice_four", 8, 64, 7}, Case{"panel_left_over", 14, 120, 64},
        Case{"of_fc2", 10, 128, 64}, Case{"of_fc1", 128, 2304, 64}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace tandem::wide_product_test

// The compiled executor's roundings against LibTorch's conversions.

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "tandem/exec/compiled/pointwise_kernels.h"

namespace tandem::rounding_test {

// Returns numbers of every exponent and sign, with mantissas at, below and above the
// middle between two 16-bit numbers; also infinities and NaN.
at::Tensor float_patterns() {
  constexpr int64_t kCount = 1 << 20;
  auto values = at::empty({kCount + 4}, at::kFloat);
  auto* bits = static_cast<uint32_t*>(values.data_ptr());
  for (int64_t i = 0; i < kCount; ++i) {
    const auto upper = static_cast<uint32_t>(i) << 12;
    const uint32_t lower[] = {0, 1, 0x800, 0xFFF};
    bits[i] = upper | lower[(i >> 3) & 3];
  }
  const uint32_t ends[] = {0x477F'EFFF, 0x477F'F000, 0x3300'0000, 0x3300'0001};
  std::memcpy(bits + kCount, ends, sizeof(ends));
  return values;
}

void expect_rounded(at::ScalarType type, void (*round)(int64_t, float*)) {
  const auto values = float_patterns();
  const auto expected = values.to(type).to(at::kFloat);
  auto found = values.clone();
  round(found.numel(), found.data_ptr<float>());
  const auto same = found.eq(expected) | (found.isnan() & expected.isnan());
  EXPECT_TRUE(same.all().item<bool>())
      << values.masked_select(same.logical_not()).slice(0, 0, 4) << " became "
      << found.masked_select(same.logical_not()).slice(0, 0, 4);
  EXPECT_TRUE(found.signbit()
                  .eq(values.signbit())
                  .logical_or(found.isnan())
                  .all()
                  .item<bool>());
}

TEST(Rounding, ToFloat16EqualsLibTorch) {
  expect_rounded(at::kHalf, &round_to_fp16);
}

TEST(Rounding, ToBfloat16EqualsLibTorch) {
  expect_rounded(at::kBFloat16, &round_to_bf16);
}

}  // namespace tandem::rounding_test

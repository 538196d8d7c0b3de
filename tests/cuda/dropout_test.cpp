// Dropout's kernels against model/dropout.h, bit for bit.

#include "tandem/kernels/cuda/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tandem/model/dropout.h"
#include "tests/cuda/orders.h"

namespace tandem::dropout_test {

constexpr int64_t kLayer = 5;

const BatchPlace kPlace{0x123456789abcdef0, 3, 100'000, 7, 0, 1};
const SampleContext kContext{0x123456789abcdef0, 3, 100'000, 7};

// Calls `body(num_samples, elements, p)` for shapes around a group of 128 and a block.
template <typename Body>
void for_shapes(Body&& body) {
  in_orders([&] {
    for (const int64_t samples : {0, 1, 3, 17}) {
      for (const int64_t elements : {0, 1, 16, 65, 127, 128, 129, 1000}) {
        for (const double p : {0.0, 0.25, 0.999}) {
          SCOPED_TRACE(
              std::to_string(samples) + " x " + std::to_string(elements) + ", " +
              std::to_string(p));
          body(samples, elements, p);
        }
      }
    }
  });
}

template <typename T>
class DropoutKernels : public testing::Test {
 protected:
  static constexpr auto kDtype = sizeof(T) == 4 ? at::kFloat : at::kDouble;
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(DropoutKernels, Types);

TYPED_TEST(DropoutKernels, MasksHaveTheBitsOfTheCpus) {
  using T = TypeParam;
  for_shapes([&](int64_t samples, int64_t elements, double p) {
    const auto expected =
        dropout_mask(kContext, kLayer, samples, elements, p, this->kDtype);
    std::vector<T> mask(static_cast<size_t>(samples * elements), T(7));
    cuda::dropout_mask(&kPlace, kLayer, samples, elements, p, mask.data(), nullptr);
    EXPECT_TRUE(same_bits(mask, expected.template data_ptr<T>()));
  });
}

TYPED_TEST(DropoutKernels, ApplyTheMask) {
  using T = TypeParam;
  for_shapes([&](int64_t samples, int64_t elements, double p) {
    const auto mask =
        dropout_mask(kContext, kLayer, samples, elements, p, this->kDtype);
    const T* factors = mask.template data_ptr<T>();
    std::vector<T> in(static_cast<size_t>(samples * elements));
    std::vector<T> expected(in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      in[i] = static_cast<T>(std::sin(static_cast<double>(i) + 0.1));
      expected[i] = in[i] * factors[i];
    }
    // Into the same array.
    cuda::apply_dropout(
        &kPlace, kLayer, samples, elements, p, in.data(), in.data(), nullptr);
    EXPECT_TRUE(same_bits(in, expected.data()));
  });
}

TYPED_TEST(DropoutKernels, ApplyTheMaskToWholeChannels) {
  using T = TypeParam;
  in_orders([&] {
    for (const int64_t channels : {1, 16, 129}) {
      for (const int64_t area : {1, 35, 200}) {
        const auto mask =
            dropout_mask(kContext, kLayer, 3, channels, 0.25, this->kDtype);
        const T* factors = mask.template data_ptr<T>();
        std::vector<T> values(static_cast<size_t>(3 * channels * area));
        std::vector<T> expected(values.size());
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<T>(std::sin(static_cast<double>(i) + 0.1));
          expected[i] = values[i] * factors[i / static_cast<size_t>(area)];
        }
        cuda::apply_channel_dropout(
            &kPlace, kLayer, 3, channels, area, 0.25, values.data(), values.data(),
            nullptr);
        EXPECT_TRUE(same_bits(values, expected.data()));
      }
    }
  });
}

TEST(DropoutKeep, HasTheBytesOfTheCpus) {
  for_shapes([&](int64_t samples, int64_t elements, double p) {
    std::vector<uint8_t> expected(static_cast<size_t>(samples * elements), 9);
    dropout_keep(kContext, kLayer, samples, elements, p, expected.data());
    std::vector<uint8_t> keep(expected.size(), 7);
    cuda::dropout_keep(&kPlace, kLayer, samples, elements, p, keep.data(), nullptr);
    EXPECT_EQ(keep, expected);
  });
}

}  // namespace tandem::dropout_test

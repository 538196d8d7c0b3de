#include "tandem/kernels/flush_denormals.h"

#include <gtest/gtest.h>

#include <cfenv>

namespace tandem::flush_denormals_test {

#if defined(__x86_64__) || defined(__aarch64__)

// Half of the smallest normal number.
constexpr float kDenormal = 5.877472e-39F;

float product(float left, float right) {
  // Keeps the compiler from computing the product.
  volatile float a = left;
  volatile float b = right;
  return a * b;
}

TEST(FlushDenormals, FlushesOperandsAndResultsWhileItExists) {
  // An executor of an earlier test may have changed this thread's mode.
  std::fenv_t before;
  std::fegetenv(&before);
  std::fesetenv(FE_DFL_ENV);
  EXPECT_EQ(product(kDenormal, 2), 2 * kDenormal);
  EXPECT_EQ(product(4 * kDenormal, 0.25F), kDenormal);
  {
    const FlushDenormals flush;
    EXPECT_EQ(product(kDenormal, 2), 0);
    EXPECT_EQ(product(4 * kDenormal, 0.25F), 0);
    EXPECT_EQ(product(4 * kDenormal, 0.5F), 2 * kDenormal);
  }
  EXPECT_EQ(product(kDenormal, 2), 2 * kDenormal);
  EXPECT_EQ(product(4 * kDenormal, 0.25F), kDenormal);
  std::fesetenv(&before);
}

#endif

}  // namespace tandem::flush_denormals_test

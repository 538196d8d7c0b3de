#include "tandem/kernels/flush_denormals.h"

#include <gtest/gtest.h>

#include <cfenv>

namespace tandem::flush_denormals_test {

#if defined(__x86_64__) || defined(__aarch64__)

// Half of the smallest normal number: denormal itself, and of two normal ones.
constexpr float kDenormal = 5.877472e-39F;

float product(float left, float right) {
  // The compiler must not know the values.
  volatile float a = left;
  volatile float b = right;
  return a * b;
}

TEST(FlushDenormals, ReadAndComputedOnesCountAsZeroWhileItLives) {
  // An executor leaves the thread that made it flushing.
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

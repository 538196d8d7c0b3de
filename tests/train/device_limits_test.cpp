#include "tandem/train/device_limits.h"

#include <gtest/gtest.h>

namespace tandem::device_limits_test {

TEST(DeviceObstacle, OldGpusDoNotSupportBf16AndTf32) {
  for (const auto precision : {Precision::bf16, Precision::tf32}) {
    EXPECT_EQ(
        precision_obstacle(precision, "7.5"),
        std::string("precision ") + name_of(precision) +
            " needs compute capability 8.0, and it has 7.5; use --precision fp16 or "
            "fp32");
    for (const char* enough : {"8.0", "8.6", "9.0", "10.0", "12.0"}) {
      EXPECT_EQ(precision_obstacle(precision, enough), "");
    }
  }
}

TEST(DeviceObstacle, EveryGpuSupportsOtherPrecisions) {
  for (const auto precision : {Precision::fp32, Precision::fp16, Precision::fp64}) {
    EXPECT_EQ(precision_obstacle(precision, "7.5"), "");
  }
}

}  // namespace tandem::device_limits_test

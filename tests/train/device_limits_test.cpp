#include "tandem/train/device_limits.h"

#include <gtest/gtest.h>

namespace tandem::device_limits_test {

TEST(DeviceObstacle, OldGpusDoNotSupportBf16AndTf32) {
  for (const auto& [value, name, help] : choices<Precision>()) {
    const bool is_new = value == Precision::bf16 || value == Precision::tf32;
    EXPECT_EQ(
        precision_obstacle(value, "7.5"),
        is_new ? std::string("precision ") + name +
                     " needs compute capability 8.0, and it has 7.5; use --precision "
                     "fp16 or fp32"
               : "");
    for (const char* enough : {"8.0", "8.6", "9.0", "10.0", "12.0"}) {
      EXPECT_EQ(precision_obstacle(value, enough), "");
    }
  }
}

}  // namespace tandem::device_limits_test

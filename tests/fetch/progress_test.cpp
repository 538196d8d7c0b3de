#include "app/fetch/progress.h"

#include <gtest/gtest.h>

namespace tandem::app::progress_test {

TEST(ProgressLine, HasBarPercentBytesAndSpeed) {
  EXPECT_EQ(
      progress_line("file.gz", 4'000'000, 8'000'000, 1'500'000),
      "file.gz [##########..........]  50 %  4.0 MB of 8.0 MB  1.5 MB/s");
  EXPECT_EQ(
      progress_line("file.gz", 0, 28'881, 0),
      "file.gz [....................]   0 %  0 bytes of 28.9 kB  0.0 MB/s");
  EXPECT_EQ(
      progress_line("f", 900, 900, 900'000),
      "f [####################] 100 %  900 bytes of 900 bytes  0.9 MB/s");
}

}  // namespace tandem::app::progress_test

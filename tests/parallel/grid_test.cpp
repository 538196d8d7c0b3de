#include "tandem/parallel/pipeline/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::grid_test {

using testing::HasSubstr;

std::pair<int64_t, int64_t> degrees(int64_t stages, int64_t replicas, int size) {
  const Grid grid = make_grid(stages, replicas, 0, size);
  return {grid.stages, grid.replicas};
}

TEST(Grid, StagesOfAPipelineAreConsecutiveRanks) {
  for (int rank = 0; rank < 6; ++rank) {
    const Grid grid = make_grid(3, 2, rank, 6);
    EXPECT_EQ(grid.stage, rank % 3);
    EXPECT_EQ(grid.replica, rank / 3);
  }
}

TEST(Grid, ZeroIsComputedFromTheOtherDegree) {
  EXPECT_EQ(degrees(0, 0, 4), std::pair(int64_t{4}, int64_t{1}));
  EXPECT_EQ(degrees(2, 0, 6), std::pair(int64_t{2}, int64_t{3}));
  EXPECT_EQ(degrees(0, 2, 6), std::pair(int64_t{3}, int64_t{2}));
  EXPECT_EQ(degrees(0, 0, 1), std::pair(int64_t{1}, int64_t{1}));
}

TEST(Grid, ErrorListsTheDegreesThatFit) {
  const auto message = [](int64_t stages, int64_t replicas, int size) {
    return error_of<ConfigError>([&] { make_grid(stages, replicas, 0, size); });
  };
  expect_parts(
      message(2, 3, 4),
      {"2 stages x 3 replicas", "4 ranks", "1 x 4, 2 x 2, 4 x 1", "--nproc"});
  EXPECT_THAT(message(4, 0, 6), HasSubstr("4 stages x any replicas"));
  EXPECT_THAT(message(7, 0, 6), HasSubstr("1 x 6, 2 x 3, 3 x 2, 6 x 1"));
  EXPECT_THAT(message(0, 4, 6), HasSubstr("any stages x 4 replicas"));
  EXPECT_THAT(message(0, 7, 6), HasSubstr("do not fit 6 ranks"));
  EXPECT_THAT(message(1, 1, 2), HasSubstr("1 x 2, 2 x 1"));
}

}  // namespace tandem::grid_test

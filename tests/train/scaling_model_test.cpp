#include "tandem/train/scaling_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/base/error.h"

namespace tandem::scaling_model_test {

// A step of 100 ms, of which 50 ms can hide communication. 8 MB take 8 ms at 1 GB/s.
ScalingInputs inputs() {
  ScalingInputs made;
  made.step_ms = 100;
  made.buckets = {{3e6, 50}, {4e6, 20}, {1e6, 0}};
  made.bandwidth = 1e9;
  made.latency_ms = 0.25;
  return made;
}

TEST(ScalingModel, OneRankTakesTheMeasuredTime) {
  const auto point = predict_step(inputs(), 1);
  EXPECT_EQ(point.step_ms, 100);
  EXPECT_EQ(point.efficiency, 1);
  EXPECT_EQ(point.ranks, 1);
  EXPECT_EQ(point.comm_ms, 0);
}

TEST(ScalingModel, WithoutOverlapTimesAreSummed) {
  auto flat = inputs();
  flat.buckets = flat_bucket(flat.buckets);
  // 2 (4 - 1) messages of 2 MB and 0.25 ms.
  const auto point = predict_step(flat, 4);
  EXPECT_DOUBLE_EQ(point.comm_ms, 6 * (2 + 0.25));
  EXPECT_DOUBLE_EQ(point.step_ms, 100 + 13.5);
  EXPECT_DOUBLE_EQ(point.efficiency, 100 / 113.5);
  // CPU time of communication does not matter, because nothing runs at the same time.
  flat.comm_cpu_ms = 5;
  EXPECT_DOUBLE_EQ(predict_step(flat, 4).step_ms, 113.5);
}

TEST(ScalingModel, BackwardHidesAllButTheLastBucket) {
  // On two nodes, buckets take 3.5, 4.5 and 1.5 ms; the first two have 50 and 20 ms.
  const auto point = predict_step(inputs(), 2);
  EXPECT_DOUBLE_EQ(point.comm_ms, 9.5);
  EXPECT_DOUBLE_EQ(point.exposed_ms, 1.5);
}

TEST(ScalingModel, ABucketWaitsForThoseBeforeIt) {
  // On a slow link the first bucket takes 60.5 ms, so it ends after backward, and the
  // other buckets follow: 60.5 + 80.5 + 20.5 - 50.
  auto slow = inputs();
  slow.bandwidth = 5e7;
  EXPECT_DOUBLE_EQ(predict_step(slow, 2).exposed_ms, 111.5);
}

TEST(ScalingModel, EfficiencyIsOneIfCommunicationIsFree) {
  auto ideal = inputs();
  ideal.bandwidth = std::numeric_limits<double>::infinity();
  ideal.latency_ms = 0;
  for (const int nodes : {1, 2, 37, 1024}) {
    EXPECT_DOUBLE_EQ(predict_step(ideal, nodes).efficiency, 1) << nodes;
  }
}

TEST(ScalingModel, HiddenCommunicationCostsCpuTime) {
  auto busy = inputs();
  busy.comm_cpu_ms = 1.9;
  // 8 of 9.5 ms are hidden, and a fifth of that is CPU time.
  EXPECT_DOUBLE_EQ(predict_step(busy, 2).exposed_ms, 1.5 + 8 * 0.2);
  // CPU time is limited to the time of communication.
  busy.comm_cpu_ms = 50;
  EXPECT_DOUBLE_EQ(predict_step(busy, 2).exposed_ms, 9.5);
}

TEST(ScalingModel, RanksOfANodeReduceFirst) {
  auto node = inputs();
  node.ranks_per_node = 4;
  node.local_ms = 3;
  EXPECT_DOUBLE_EQ(predict_step(node, 1).step_ms, 103);
  EXPECT_EQ(predict_step(node, 8).ranks, 32);
  // The ring has nodes, not ranks.
  EXPECT_DOUBLE_EQ(predict_step(node, 2).step_ms, 103 + 1.5);
  node.crowding = 2;
  EXPECT_DOUBLE_EQ(predict_step(node, 1).step_ms, 203);
  EXPECT_DOUBLE_EQ(predict_step(node, 1).efficiency, 100.0 / 203);
  // Backward takes twice as long, so it hides twice as much.
  node.bandwidth = 5e7;
  EXPECT_DOUBLE_EQ(predict_step(node, 2).exposed_ms, 3 + 161.5 - 100);
}

TEST(ScalingModel, EfficiencyFallsWithNodesAndSlowerLinks) {
  auto busy = inputs();
  busy.comm_cpu_ms = 4;
  for (const double bandwidth : {1e7, 1e8, 1e9, 1e11}) {
    busy.bandwidth = bandwidth;
    double before = 2;
    for (int nodes = 1; nodes <= 1024; nodes += 3) {
      const double efficiency = predict_step(busy, nodes).efficiency;
      EXPECT_LE(efficiency, before) << nodes << " nodes, " << bandwidth;
      before = efficiency;
      auto slower = busy;
      slower.bandwidth /= 2;
      EXPECT_LE(predict_step(slower, nodes).efficiency, efficiency);
      auto later = busy;
      later.latency_ms *= 2;
      EXPECT_LE(predict_step(later, nodes).efficiency, efficiency);
      auto flat = busy;
      flat.buckets = flat_bucket(flat.buckets);
      flat.latency_ms = 0;
      auto cut = busy;
      cut.latency_ms = 0;
      EXPECT_LE(
          predict_step(flat, nodes).efficiency, predict_step(cut, nodes).efficiency);
    }
  }
}

TEST(ScalingModel, EvenBucketsFillTheWindowAndKeepAllBytes) {
  const auto buckets = even_buckets(10e6, 4e6, 30);
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_DOUBLE_EQ(buckets[0].bytes, 10e6 / 3);
  EXPECT_DOUBLE_EQ(buckets[0].lead_ms, 20);
  EXPECT_DOUBLE_EQ(buckets[2].lead_ms, 0);
  EXPECT_TRUE(even_buckets(0, 4e6, 30).empty());
  EXPECT_DOUBLE_EQ(flat_bucket(buckets)[0].bytes, 10e6);
}

TEST(ScalingModel, RefusesInvalidInputs) {
  const auto refused = [](auto change, int nodes = 2) {
    auto wrong = inputs();
    change(wrong);
    EXPECT_THROW(predict_step(wrong, nodes), ConfigError);
  };
  refused([](ScalingInputs& in) { in.step_ms = 0; });
  refused([](ScalingInputs& in) { in.step_ms = std::nan(""); });
  refused([](ScalingInputs& in) { in.bandwidth = 0; });
  refused([](ScalingInputs& in) { in.latency_ms = -1; });
  refused([](ScalingInputs& in) { in.ranks_per_node = 0; });
  refused([](ScalingInputs& in) { in.crowding = 0.5; });
  refused([](ScalingInputs& in) { in.buckets[0].lead_ms = -1; });
  refused([](ScalingInputs&) {}, 0);
  EXPECT_THROW(even_buckets(1e6, 0, 30), ConfigError);
  EXPECT_THROW(even_buckets(1e18, 1, 30), ConfigError);
}

}  // namespace tandem::scaling_model_test

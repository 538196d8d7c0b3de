// Compares stages of a model, and replicas of stages, with the whole model.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/parallel/identity.h"

namespace tandem::pipeline_identity_test {

// A grid of stages x replicas, compared with gradient accumulation on one rank or with
// data parallel.
struct Pipelining {
  const char* name;
  const char* backend;
  int64_t stages;
  int64_t replicas;
  PipelineSchedule schedule;
  // Number of micro-batches per step of each replica.
  int64_t micro_batches;
  int reference_ranks;
  int64_t reference_micro_batches;
  int64_t data_size;
  // Relative difference; 0 if the bits must be equal.
  double tolerance;
};

void PrintTo(const Pipelining& row, std::ostream* out) {
  *out << row.name;
}

class PipelineIdentity : public testing::TestWithParam<Pipelining> {};

TEST_P(PipelineIdentity, EqualsTheWholeModel) {
  const Pipelining& row = GetParam();
  RunOptions options;
  options.layers = net_layers();
  options.data_size = row.data_size;
  options.tail = Tail::keep;
  options.micro_batches = row.reference_micro_batches;
  const auto reference = train_in_parallel(row.reference_ranks, options);
  options.micro_batches = row.micro_batches;
  options.strategy.kind = StrategyKind::pipeline;
  options.strategy.stages = row.stages;
  options.strategy.replicas = row.replicas;
  options.strategy.pipeline_schedule = row.schedule;
  const auto ranks = train_in_parallel(
      static_cast<int>(row.stages * row.replicas), options, row.backend);
  const double difference =
      relative_difference(ranks[0].parameters, reference[0].parameters);
  RecordProperty("relative_difference", testing::PrintToString(difference));
  if (row.tolerance == 0) {
    EXPECT_EQ(ranks[0].sha256, reference[0].sha256) << difference;
  } else {
    EXPECT_LE(difference, row.tolerance);
  }
  for (const auto& rank : ranks) {
    EXPECT_NEAR(
        rank.gradient_norm, reference[0].gradient_norm,
        kTolerance * reference[0].gradient_norm);
  }
  const auto total = [](const std::vector<RunResult>& results) {
    auto sums = results[0].sums.clone().zero_();
    for (const auto& rank : results) {
      sums += rank.sums;
    }
    return sums;
  };
  EXPECT_LE(relative_difference(total(ranks), total(reference)), kTolerance);
}

constexpr auto kGpipe = PipelineSchedule::gpipe;
constexpr auto k1f1b = PipelineSchedule::one_forward_one_backward;

// With 61 samples the last micro-batches are smaller. With 49 samples the last step has
// one sample: all micro-batches but one, and all replicas but one, have none.
const Pipelining kPipelines[] = {
    {"one_stage", "thread", 1, 1, k1f1b, 3, 1, 3, 60, 0},
    {"two_stages_one_micro_batch", "thread", 2, 1, k1f1b, 1, 1, 1, 60, 0},
    {"two_stages_gpipe", "thread", 2, 1, kGpipe, 4, 1, 4, 60, 0},
    {"two_stages_1f1b", "thread", 2, 1, k1f1b, 4, 1, 4, 60, 0},
    {"two_stages_gpipe_gloo", "gloo", 2, 1, kGpipe, 4, 1, 4, 60, 0},
    {"two_stages_1f1b_gloo", "gloo", 2, 1, k1f1b, 4, 1, 4, 60, 0},
    {"two_stages_uneven", "thread", 2, 1, k1f1b, 3, 1, 3, 61, 0},
    {"two_stages_uneven_gloo", "gloo", 2, 1, kGpipe, 3, 1, 3, 61, 0},
    {"two_stages_few_left", "thread", 2, 1, k1f1b, 4, 1, 4, 49, 0},
    {"three_stages_gpipe", "thread", 3, 1, kGpipe, 6, 1, 6, 60, 0},
    {"three_stages_1f1b", "thread", 3, 1, k1f1b, 6, 1, 6, 60, 0},
    {"two_stages_gpipe_shm", "shm", 2, 1, kGpipe, 4, 1, 4, 60, 0},
    {"three_stages_1f1b_shm", "shm", 3, 1, k1f1b, 6, 1, 6, 60, 0},
    {"hybrid_shm", "shm", 2, 2, k1f1b, 2, 2, 2, 60, 0},
    {"three_stages_gpipe_gloo", "gloo", 3, 1, kGpipe, 6, 1, 6, 60, 0},
    {"three_stages_1f1b_gloo", "gloo", 3, 1, k1f1b, 6, 1, 6, 60, 0},
    {"three_stages_uneven_gloo", "gloo", 3, 1, k1f1b, 4, 1, 4, 61, 0},
    {"four_stages_fewer_micro_batches", "thread", 4, 1, k1f1b, 2, 1, 2, 60, 0},
    {"two_replicas_of_one_stage", "thread", 1, 2, k1f1b, 2, 2, 2, 60, 0},
    {"three_replicas_of_one_stage", "thread", 1, 3, kGpipe, 2, 3, 2, 61, 0},
    {"hybrid_as_data_parallel", "thread", 2, 2, k1f1b, 2, 2, 2, 60, 0},
    {"hybrid_as_sequential", "thread", 2, 2, k1f1b, 2, 1, 4, 60, kTolerance},
    {"hybrid_gpipe", "thread", 2, 2, kGpipe, 3, 1, 1, 60, kTolerance},
    {"hybrid_gloo", "gloo", 2, 2, k1f1b, 3, 1, 1, 60, kTolerance},
    {"hybrid_uneven", "thread", 2, 2, k1f1b, 3, 1, 1, 61, kTolerance},
    {"hybrid_few_left", "gloo", 2, 3, k1f1b, 2, 1, 1, 49, kTolerance},
    {"hybrid_three_by_two", "thread", 3, 2, k1f1b, 4, 1, 1, 61, kTolerance},
};

INSTANTIATE_TEST_SUITE_P(
    Table, PipelineIdentity, testing::ValuesIn(kPipelines),
    [](const auto& row) { return std::string(row.param.name); });

TEST(PipelineIdentity, EqualsTheWholeModelForEveryOptimizerAndClippedGradients) {
  RunOptions options;
  options.micro_batches = 3;
  options.epochs = 1;
  const auto expect_the_same = [](const RunOptions& run, double tolerance) {
    const auto reference = train_sequentially(run);
    auto divided = run;
    divided.strategy.kind = StrategyKind::pipeline;
    divided.strategy.stages = 3;
    const auto ranks = train_in_parallel(3, divided);
    EXPECT_LE(
        relative_difference(ranks[0].parameters, reference.parameters), tolerance);
    EXPECT_NEAR(
        ranks[0].gradient_norm, reference.gradient_norm,
        kTolerance * reference.gradient_norm);
  };
  options.strategy.clip_norm = 0.5;
  expect_the_same(options, kTolerance);
  options.strategy.clip_norm = 0;
  options.optimizer = OptimizerOptions();
  options.lr = 0.002;
  for (const auto kind :
       {OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::adadelta}) {
    options.optimizer.kind = kind;
    expect_the_same(options, 0);
  }
}

}  // namespace tandem::pipeline_identity_test

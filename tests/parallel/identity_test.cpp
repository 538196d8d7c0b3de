// Training in parallel equals sequential training on the whole batch, in float64, with
// dropout.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tandem/comm/backends/thread.h"
#include "tests/comm/group.h"
#include "tests/parallel/replica.h"

namespace tandem {
namespace {

constexpr double kTolerance = 1e-12;
constexpr SyncMode kModes[] = {SyncMode::parameter, SyncMode::flat, SyncMode::overlap};

std::vector<RunResult> train_in_parallel(
    int size, const RunOptions& options, const std::string& backend = "thread") {
  if (backend == "mpi" && !is_mpi_rank()) {
    rerun_under_mpirun(size);
  }
  return on_each_rank(backend, size, [&](Communicator& comm) {
    return train_small_net(comm, options);
  });
}

void expect_equals(const std::vector<RunResult>& ranks, const RunResult& reference) {
  auto sums = ranks[0].sums.clone().zero_();
  for (const auto& rank : ranks) {
    EXPECT_LE(relative_difference(rank.parameters, reference.parameters), kTolerance);
    EXPECT_EQ(rank.sha256, ranks[0].sha256);
    sums += rank.sums;
  }
  EXPECT_NEAR(
      sums[0].item<double>(), reference.sums[0].item<double>(),
      kTolerance * reference.sums[0].item<double>());
  EXPECT_EQ(sums[1].item<double>(), reference.sums[1].item<double>());
  EXPECT_EQ(sums[2].item<double>(), reference.sums[2].item<double>());
}

TEST(DataParallelIdentity, ReferenceDependsOnItsSeedAndTrains) {
  RunOptions options;
  const auto reference = train_sequentially(options);
  EXPECT_EQ(reference.sums[2].item<double>(), 120);
  EXPECT_EQ(train_sequentially(options).sha256, reference.sha256);
  options.seed = 6;
  EXPECT_GT(
      relative_difference(train_sequentially(options).parameters, reference.parameters),
      1e-3);
  options.lr = 0;
  EXPECT_GT(
      relative_difference(train_sequentially(options).parameters, reference.parameters),
      1e-2);
}

TEST(DataParallelIdentity, EverySyncModeAndSizeEqualsSequential) {
  RunOptions options;
  const auto reference = train_sequentially(options);
  for (const int size : {1, 2, 3, 4}) {
    for (const auto sync : kModes) {
      SCOPED_TRACE(
          std::to_string(size) + " ranks, mode " +
          std::to_string(static_cast<int>(sync)));
      options.strategy.sync = sync;
      expect_equals(train_in_parallel(size, options), reference);
    }
  }
}

// One way of dividing the work. The reference is the sequential strategy on the same
// global batch, of which it takes `micro_batches` parts, one after the other.
struct Division {
  const char* name;
  int ranks;
  const char* backend;
  SyncMode sync;
  // Of each rank.
  int64_t micro_batches;
  int64_t reference_micro_batches;
  int64_t data_size;
  // 0: the same bits.
  double tolerance;
};

void PrintTo(const Division& division, std::ostream* out) {
  *out << division.name;
}

class NetIdentity : public testing::TestWithParam<Division> {};

TEST_P(NetIdentity, EqualsSequential) {
  const Division& division = GetParam();
  RunOptions options;
  options.layers = net_layers();
  options.data_size = division.data_size;
  options.tail = Tail::keep;
  options.micro_batches = division.reference_micro_batches;
  const auto reference = train_sequentially(options);
  options.micro_batches = division.micro_batches;
  options.strategy.sync = division.sync;
  const auto ranks = train_in_parallel(division.ranks, options, division.backend);
  if (ranks.empty()) {
    return;  // MPI's ranks are processes of their own, which compare
  }
  double largest = 0;
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank.sha256, ranks[0].sha256);
    largest =
        std::max(largest, relative_difference(rank.parameters, reference.parameters));
  }
  RecordProperty("relative_difference", testing::PrintToString(largest));
  if (division.tolerance == 0) {
    EXPECT_EQ(ranks[0].sha256, reference.sha256);
  } else {
    EXPECT_LE(largest, division.tolerance);
  }
}

constexpr auto kParameter = SyncMode::parameter;
constexpr auto kFlat = SyncMode::flat;
constexpr auto kOverlap = SyncMode::overlap;

// A step has 24 samples; of 60 the last has 12, of 61 it has 13, which no number of
// ranks divides.
const std::vector<Division> kDivisions = {
    {"one_rank_parameter", 1, "thread", kParameter, 1, 1, 60, 0},
    {"one_rank_flat", 1, "thread", kFlat, 1, 1, 60, 0},
    {"one_rank_overlap", 1, "thread", kOverlap, 1, 1, 60, 0},
    {"two_threads_parameter", 2, "thread", kParameter, 1, 2, 60, 0},
    {"two_threads_flat", 2, "thread", kFlat, 1, 2, 60, 0},
    {"two_threads_overlap", 2, "thread", kOverlap, 1, 2, 60, 0},
    {"two_gloo_parameter", 2, "gloo", kParameter, 1, 2, 60, 0},
    {"two_gloo_flat", 2, "gloo", kFlat, 1, 2, 60, 0},
    {"two_gloo_overlap", 2, "gloo", kOverlap, 1, 2, 60, 0},
    {"two_shm_parameter", 2, "shm", kParameter, 1, 2, 60, 0},
    {"two_shm_flat", 2, "shm", kFlat, 1, 2, 60, 0},
    {"two_shm_overlap", 2, "shm", kOverlap, 1, 2, 60, 0},
    {"two_shm_uneven", 2, "shm", kOverlap, 1, 2, 61, 0},
    {"three_shm_overlap", 3, "shm", kOverlap, 1, 1, 60, kTolerance},
    {"four_shm_uneven", 4, "shm", kOverlap, 1, 1, 61, kTolerance},
    {"three_on_two_hosts_flat", 3, "hierarchical", kFlat, 1, 1, 60, kTolerance},
    {"four_on_two_hosts_overlap", 4, "hierarchical", kOverlap, 1, 1, 61, kTolerance},
    {"two_mpi_parameter", 2, "mpi", kParameter, 1, 2, 60, 0},
    {"two_mpi_flat", 2, "mpi", kFlat, 1, 2, 60, 0},
    {"two_mpi_overlap", 2, "mpi", kOverlap, 1, 2, 60, 0},
    {"two_mpi_uneven", 2, "mpi", kOverlap, 1, 2, 61, 0},
    {"two_threads_uneven", 2, "thread", kOverlap, 1, 2, 61, 0},
    {"two_gloo_uneven", 2, "gloo", kOverlap, 1, 2, 61, 0},
    {"two_threads_undivided", 2, "thread", kOverlap, 1, 1, 60, kTolerance},
    {"two_threads_undivided_uneven", 2, "thread", kOverlap, 1, 1, 61, kTolerance},
    {"three_threads_parameter", 3, "thread", kParameter, 1, 1, 60, kTolerance},
    {"three_threads_flat", 3, "thread", kFlat, 1, 1, 60, kTolerance},
    {"three_threads_overlap", 3, "thread", kOverlap, 1, 1, 60, kTolerance},
    {"three_gloo_overlap", 3, "gloo", kOverlap, 1, 1, 60, kTolerance},
    {"three_mpi_overlap", 3, "mpi", kOverlap, 1, 1, 60, kTolerance},
    {"three_threads_uneven", 3, "thread", kOverlap, 1, 1, 61, kTolerance},
    {"four_threads_parameter", 4, "thread", kParameter, 1, 1, 60, kTolerance},
    {"four_threads_flat", 4, "thread", kFlat, 1, 1, 60, kTolerance},
    {"four_threads_overlap", 4, "thread", kOverlap, 1, 1, 60, kTolerance},
    {"four_gloo_overlap", 4, "gloo", kOverlap, 1, 1, 60, kTolerance},
    {"four_mpi_overlap", 4, "mpi", kOverlap, 1, 1, 60, kTolerance},
    {"four_threads_uneven", 4, "thread", kOverlap, 1, 1, 61, kTolerance},
    {"two_accumulations", 1, "thread", kOverlap, 2, 1, 60, kTolerance},
    {"three_accumulations_uneven", 1, "thread", kOverlap, 3, 1, 61, kTolerance},
    {"two_threads_two_accumulations", 2, "thread", kFlat, 2, 1, 60, kTolerance},
    {"two_gloo_three_accumulations_uneven", 2, "gloo", kOverlap, 3, 1, 61, kTolerance},
};

std::vector<Division> divisions_of_this_build() {
  std::vector<Division> divisions;
  for (const auto& division : kDivisions) {
    if (has_mpi() || division.backend != std::string("mpi")) {
      divisions.push_back(division);
    }
  }
  return divisions;
}

INSTANTIATE_TEST_SUITE_P(
    Table, NetIdentity, testing::ValuesIn(divisions_of_this_build()),
    [](const auto& row) { return std::string(row.param.name); });

// Batch norm with the statistics of all ranks' samples, against one rank that has them
// all. Its running statistics too.
class SyncedNormIdentity : public testing::TestWithParam<Division> {};

TEST_P(SyncedNormIdentity, EqualsTheWholeBatch) {
  const Division& division = GetParam();
  RunOptions options;
  options.layers = convnet_bn_layers();
  options.loss.kind = LossKind::cross_entropy;
  options.data_size = division.data_size;
  options.tail = Tail::keep;
  const auto reference = train_sequentially(options);
  options.strategy.sync = division.sync;
  options.strategy.buffers = BufferSync::sync;
  double largest = 0;
  const auto ranks = train_in_parallel(division.ranks, options, division.backend);
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank.sha256, ranks[0].sha256);
    EXPECT_TRUE(rank.buffers.equal(ranks[0].buffers));
    EXPECT_LE(relative_difference(rank.buffers, reference.buffers), division.tolerance);
    largest =
        std::max(largest, relative_difference(rank.parameters, reference.parameters));
  }
  RecordProperty("relative_difference", testing::PrintToString(largest));
  EXPECT_LE(largest, division.tolerance);
  // Statistics of each rank's own samples give something else.
  options.strategy.buffers = BufferSync::off;
  const auto apart = train_in_parallel(division.ranks, options, division.backend);
  if (division.ranks > 1) {
    EXPECT_GT(relative_difference(apart[0].parameters, reference.parameters), 1e-3);
  }
}

// Of 49 samples the last step has one: the other ranks have none there.
const Division kBatchNormDivisions[] = {
    {"one_rank", 1, "thread", kOverlap, 1, 1, 61, kTolerance},
    {"two_threads", 2, "thread", kOverlap, 1, 1, 60, kTolerance},
    {"two_threads_uneven", 2, "thread", kOverlap, 1, 1, 61, kTolerance},
    {"two_gloo_uneven", 2, "gloo", kOverlap, 1, 1, 61, kTolerance},
    {"two_shm_uneven", 2, "shm", kOverlap, 1, 1, 61, kTolerance},
    {"two_gloo_without_samples", 2, "gloo", kParameter, 1, 1, 49, kTolerance},
    {"three_threads_flat_uneven", 3, "thread", kFlat, 1, 1, 61, kTolerance},
    {"three_gloo_without_samples", 3, "gloo", kOverlap, 1, 1, 49, kTolerance},
    {"four_threads_without_samples", 4, "thread", kOverlap, 1, 1, 49, kTolerance},
};

INSTANTIATE_TEST_SUITE_P(
    Table, SyncedNormIdentity, testing::ValuesIn(kBatchNormDivisions),
    [](const auto& row) { return std::string(row.param.name); });

// Averaging every step by plain SGD averages gradients: the mean of p - lr * g is
// p - lr * (mean of g), where every rank has as many samples in each step.
TEST(AveragingIdentity, EveryStepByPlainSgdIsDataParallel) {
  for (const int64_t micro_batches : {1, 2}) {
    RunOptions options;
    options.data_size = 48;
    options.micro_batches = micro_batches;
    options.optimizer.momentum = 0;
    options.strategy.average_every = 1;
    for (const int size : {1, 2, 3, 4}) {
      SCOPED_TRACE(std::to_string(size) + " ranks");
      options.strategy.kind = StrategyKind::data_parallel;
      const auto reference = train_in_parallel(size, options);
      options.strategy.kind = StrategyKind::averaging;
      for (const auto& rank : train_in_parallel(size, options)) {
        EXPECT_LE(
            relative_difference(rank.parameters, reference[0].parameters), kTolerance);
        EXPECT_EQ(rank.sums[2].item<double>() * size, 96);
      }
    }
  }
}

TEST(AveragingIdentity, TwoStepsAloneAreAveragedAsTheyAre) {
  RunOptions options;
  options.data_size = 48;
  options.epochs = 1;  // two steps
  options.strategy.kind = StrategyKind::averaging;
  options.strategy.average_every = 2;
  const auto averaged = train_in_parallel(2, options);
  EXPECT_EQ(averaged[0].sha256, averaged[1].sha256);
  options.strategy.average_every = 1;
  EXPECT_GT(
      relative_difference(
          train_in_parallel(2, options)[0].parameters, averaged[0].parameters),
      1e-6);
  options.strategy.average_every = -1;
  const auto alone = train_in_parallel(2, options);
  EXPECT_NE(alone[0].sha256, alone[1].sha256);
  EXPECT_LE(
      relative_difference(
          (alone[0].parameters + alone[1].parameters) / 2, averaged[0].parameters),
      kTolerance);
}

TEST(AveragingIdentity, OneRankIsSequentialBitForBit) {
  for (const int64_t steps : {-1, 0, 1, 2}) {
    RunOptions options;
    options.micro_batches = 2;
    const auto reference = train_sequentially(options);
    options.strategy.kind = StrategyKind::averaging;
    options.strategy.average_every = steps;
    EXPECT_EQ(train_in_parallel(1, options)[0].sha256, reference.sha256) << steps;
  }
}

TEST(AveragingIdentity, MpiGlooAndThreadsGiveTheSameBits) {
  RunOptions options;
  options.strategy.kind = StrategyKind::averaging;
  options.strategy.average_every = 2;
  options.data_size = 48;  // four steps: the last one averages
  const auto threads = train_in_parallel(2, options);
  for (const std::string backend : all_backends()) {
    for (const auto& rank : train_in_parallel(2, options, backend)) {
      EXPECT_EQ(rank.sha256, threads[0].sha256) << backend;
    }
  }
}

// Stages x replicas against gradient accumulation on one rank, or data parallel.
struct Pipelining {
  const char* name;
  const char* backend;
  int64_t stages;
  int64_t replicas;
  PipelineSchedule schedule;
  // Of each replica.
  int64_t micro_batches;
  // Of the reference.
  int reference_ranks;
  int64_t reference_micro_batches;
  int64_t data_size;
  // 0: the same bits.
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

// As above; with 61 samples the last micro-batches are smaller, with 49 there is one
// sample left: all micro-batches but one, and all replicas but one, have none.
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

TEST(PipelineIdentity, HoldsForEveryOptimizerAndForClippedGradients) {
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

// What both ranks' loaders give, put together: so many micro-batches a step.
std::vector<Batch> joined_step(std::vector<Loader>& loaders, int64_t micro_batches) {
  std::vector<Batch> step;
  for (int64_t i = 0; i < micro_batches; ++i) {
    Batch mine;
    Batch other;
    loaders[0].next(mine);
    loaders[1].next(other);
    mine.inputs = at::cat({mine.inputs, other.inputs});
    mine.targets = at::cat({mine.targets, other.targets});
    step.push_back(mine);
  }
  return step;
}

TEST(SyncBatchNormIdentity, EachMicroBatchHasStatisticsOfItsOwnOverAllRanks) {
  RunOptions options;
  options.layers = convnet_bn_layers();
  options.data_size = 61;
  options.tail = Tail::keep;
  options.epochs = 1;
  options.micro_batches = 2;
  options.loss.kind = LossKind::cross_entropy;
  options.strategy.buffers = BufferSync::sync;
  const auto ranks = train_in_parallel(2, options);

  std::vector<Loader> loaders;
  for (const int64_t shard : {0, 1}) {
    SamplerOptions sampler;
    sampler.num_shards = 2;
    sampler.shard = shard;
    sampler.seed = options.seed;
    sampler.tail = options.tail;
    LoaderOptions loading;
    loading.batch_size = 6;
    loading.micro_batches = 2;
    loaders.emplace_back(noise_images(options.data_size), sampler, loading);
    loaders.back().seek(0);
  }
  const auto comm = make_single_communicator();
  Replica reference(
      make_small_model(options.layers), *comm, options.strategy, options.optimizer,
      options.loss);
  reference.strategy->start();
  StepContext context;
  context.seed = options.seed;
  context.lr = options.lr;
  for (; context.step < 3; ++context.step) {
    reference.strategy->train_step(joined_step(loaders, 2), context);
  }
  for (const auto& rank : ranks) {
    EXPECT_LE(relative_difference(rank.parameters, reference.parameters()), kTolerance);
    EXPECT_LE(relative_difference(rank.buffers, reference.buffers()), kTolerance);
  }
}

TEST(DataParallelIdentity, SyncModesAreEqualBitForBit) {
  RunOptions options;
  for (const int size : {2, 3}) {
    std::vector<std::string> digests;
    for (const auto sync : kModes) {
      options.strategy.sync = sync;
      digests.push_back(train_in_parallel(size, options)[0].sha256);
    }
    EXPECT_EQ(digests, std::vector<std::string>(3, digests[0])) << size;
  }
}

TEST(DataParallelIdentity, TwoRanksOverGlooEqualTwoThreadsBitForBit) {
  const RunOptions options;
  const auto threads = train_in_parallel(2, options);
  const auto processes = train_in_parallel(2, options, "gloo");
  EXPECT_EQ(processes[0].sha256, threads[0].sha256);
  EXPECT_EQ(processes[1].sha256, threads[0].sha256);
}

TEST(DataParallelIdentity, RanksThatShareMemoryEqualThreadsBitForBit) {
  RunOptions options;
  for (const int size : {2, 3, 4}) {
    for (const auto hook : {CommHook::none, CommHook::bf16, CommHook::fp16}) {
      SCOPED_TRACE(size);
      options.strategy.comm_hook = hook;
      const auto threads = train_in_parallel(size, options);
      for (const auto& rank : train_in_parallel(size, options, "shm")) {
        EXPECT_EQ(rank.sha256, threads[0].sha256);
      }
    }
  }
}

TEST(DataParallelIdentity, MicroBatchesEqualOneBatchAsLargeAsAllOfThem) {
  RunOptions options;
  const auto reference = train_sequentially(options);
  // Batches of 24, 24 and 12: the last step has fewer, and shorter, micro-batches.
  options.micro_batches = 3;
  expect_equals({train_sequentially(options)}, reference);
  for (const auto sync : kModes) {
    options.strategy.sync = sync;
    options.micro_batches = 2;
    expect_equals(train_in_parallel(2, options), reference);
    options.micro_batches = 4;
    expect_equals(train_in_parallel(3, options), reference);
  }
}

TEST(DataParallelIdentity, HoldsForTheSumAndForClippedGradients) {
  RunOptions options;
  options.loss.reduction = Reduction::sum;
  options.lr = 0.001;
  auto reference = train_sequentially(options);
  expect_equals(train_in_parallel(3, options), reference);

  options = RunOptions();
  const auto unclipped = train_sequentially(options);
  options.strategy.clip_norm = 0.5;
  reference = train_sequentially(options);
  EXPECT_GT(relative_difference(unclipped.parameters, reference.parameters), 1e-4);
  expect_equals(train_in_parallel(2, options), reference);
}

TEST(DataParallelIdentity, SumIsTheMeanTimesTheGlobalBatch) {
  RunOptions options;
  options.data_size = 48;  // two whole batches: the factor is the same in each
  const auto reference = train_sequentially(options);
  options.loss.reduction = Reduction::sum;
  options.lr /= 24;
  expect_equals({train_sequentially(options)}, reference);
  expect_equals(train_in_parallel(2, options), reference);
}

TEST(DataParallelIdentity, HoldsForEveryOptimizer) {
  for (const auto kind :
       {OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::adadelta}) {
    SCOPED_TRACE(name_of(kind));
    RunOptions options;
    options.optimizer = OptimizerOptions();
    options.optimizer.kind = kind;
    options.lr = 0.002;
    options.epochs = 1;
    const auto reference = train_sequentially(options);
    for (const auto& rank : train_in_parallel(2, options)) {
      // They divide by the gradient's size, which takes small ones apart.
      EXPECT_LE(relative_difference(rank.parameters, reference.parameters), 1e-9);
    }
  }
}

// A server that updates in step, and its workers, give the bits of as many replicas:
// thread ranks add in rank order, and so does the server.
struct ServerRow {
  const char* name;
  int workers;
  int64_t micro_batches;
  int64_t data_size;
  double clip_norm;
  OptimizerKind optimizer;
};

void PrintTo(const ServerRow& row, std::ostream* out) {
  *out << row.name;
}

class ServerIdentity : public testing::TestWithParam<ServerRow> {};

TEST_P(ServerIdentity, EqualsDataParallel) {
  const ServerRow& row = GetParam();
  RunOptions options;
  options.layers = net_layers();
  options.data_size = row.data_size;
  options.tail = Tail::keep;
  options.micro_batches = row.micro_batches;
  options.strategy.clip_norm = row.clip_norm;
  if (row.optimizer != options.optimizer.kind) {
    options.optimizer = OptimizerOptions();
    options.optimizer.kind = row.optimizer;
    options.lr = 0.002;
  }
  // Thread ranks start from rank 0's parameters, as the workers do.
  const auto replicas = train_in_parallel(row.workers, options);
  options.strategy.kind = StrategyKind::parameter_server;
  const auto ranks = train_in_parallel(row.workers + 1, options);
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank.sha256, replicas[0].sha256);
  }
  EXPECT_EQ(ranks[0].sums[2].item<double>(), 0);
  for (int worker = 0; worker < row.workers; ++worker) {
    const auto at = static_cast<size_t>(worker);
    EXPECT_TRUE(ranks[at + 1].sums.equal(replicas[at].sums)) << worker;
  }
}

const ServerRow kServerRows[] = {
    {"one_worker", 1, 1, 60, 0, OptimizerKind::sgd},
    {"two_workers", 2, 1, 60, 0, OptimizerKind::sgd},
    {"two_workers_uneven", 2, 1, 61, 0, OptimizerKind::sgd},
    {"two_workers_two_accumulations", 2, 2, 61, 0, OptimizerKind::sgd},
    {"two_workers_clipped", 2, 1, 60, 0.5, OptimizerKind::sgd},
    {"two_workers_adam", 2, 1, 60, 0, OptimizerKind::adam},
    {"three_workers", 3, 1, 60, 0, OptimizerKind::sgd},
    {"four_workers_one_idle", 4, 1, 49, 0, OptimizerKind::adamw},
};

INSTANTIATE_TEST_SUITE_P(
    Table, ServerIdentity, testing::ValuesIn(kServerRows),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace tandem

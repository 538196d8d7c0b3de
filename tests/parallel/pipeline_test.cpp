// Pipelines, except for pipeline_identity_test.cpp.

#include <ATen/ops/arange.h>
#include <ATen/ops/linspace.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"

namespace tandem::pipeline_test {

using testing::ElementsAre;

std::vector<Layer> two_norm_layers() {
  return {
      conv2d("conv1", 1, 4, 3),
      batch_norm2d("norm1", 4),
      relu(),
      conv2d("conv2", 4, 6, 3),
      batch_norm2d("norm2", 6),
      relu(),
      max_pool2d(2),
      flatten(),
      linear("fc1", 24, 12),
      relu(),
      linear("fc2", 12, 5),
      log_softmax()};
}

StrategyOptions pipeline(
    int64_t stages, int64_t replicas = 1,
    PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward) {
  StrategyOptions options;
  options.kind = StrategyKind::pipeline;
  options.stages = stages;
  options.replicas = replicas;
  options.pipeline_schedule = schedule;
  return options;
}

// Returns a micro-batch of a step of 32 samples. Its contents depend on its number.
Batch micro_batch(int64_t number) {
  Batch batch;
  batch.inputs = (at::linspace(0, 40, 4 * 64) + 3 * number).sin().view({4, 1, 8, 8});
  batch.targets = at::arange(number, number + 4).remainder(5);
  batch.first_position = 4 * number;
  batch.global_count = 32;
  return batch;
}

std::vector<Batch> micro_batches(int64_t first, int64_t count) {
  std::vector<Batch> batches;
  for (int64_t i = 0; i < count; ++i) {
    batches.push_back(micro_batch(first + i));
  }
  return batches;
}

using Measured = std::map<std::string, std::vector<double>>;

Measured measured(PipelineSchedule schedule, int64_t stages, int64_t count) {
  const auto ranks =
      on_each_rank("thread", static_cast<int>(stages), [&](Communicator& comm) {
        Replica replica(
            make_small_model(small_net_layers()), comm, pipeline(stages, 1, schedule),
            {});
        replica.strategy->start();
        replica.strategy->train_step(micro_batches(0, count), step_of(0.1));
        return replica.strategy->measurements();
      });
  return ranks[0];
}

TEST(Pipeline, OneForwardOneBackwardKeepsFewerActivationsThanGpipe) {
  auto all = measured(PipelineSchedule::gpipe, 3, 8);
  auto few = measured(PipelineSchedule::one_forward_one_backward, 3, 8);
  auto one = measured(PipelineSchedule::gpipe, 3, 1);
  EXPECT_THAT(all["stage_most_in_flight"], ElementsAre(8, 8, 8));
  EXPECT_THAT(few["stage_most_in_flight"], ElementsAre(3, 2, 1));
  const auto bytes = one["stage_peak_activation_bytes"];
  EXPECT_GT(bytes[2], 0);
  EXPECT_THAT(
      all["stage_peak_activation_bytes"],
      ElementsAre(8 * bytes[0], 8 * bytes[1], 8 * bytes[2]));
  EXPECT_THAT(
      few["stage_peak_activation_bytes"],
      ElementsAre(3 * bytes[0], 2 * bytes[1], bytes[2]));
  // Numbers of parameters: conv1 40, conv2 222, fc1 300, fc2 65.
  double parameters = 0;
  for (const double count : few["stage_parameters"]) {
    parameters += count;
  }
  EXPECT_EQ(parameters, 40 + 222 + 300 + 65);
}

// The results of a run: the state for a checkpoint, and the sums of an evaluation.
struct Left {
  TrainingState state;
  at::Tensor sums;
};

std::vector<Left> run(
    int size, const StrategyOptions& options, int64_t count,
    const std::vector<Layer>& layers, const std::string& backend = "thread") {
  return on_each_rank(backend, size, [&](Communicator& comm) {
    OptimizerOptions adam;
    adam.kind = OptimizerKind::adam;
    Replica replica(make_small_model(layers), comm, options, adam);
    replica.strategy->start();
    const int64_t first = count * replica.strategy->data_shard().shard;
    for (int64_t i = 0; i < 3; ++i) {
      auto context = step_of(0.1);
      context.step = i;
      replica.strategy->train_step(micro_batches(8 * i + first, count), context);
    }
    replica.strategy->before_evaluation();
    StepContext evaluation;
    evaluation.training = false;
    Left left;
    StepSums sums;
    for (const int64_t rows : {7, 9}) {
      const Batch batch = micro_batch(rows);
      sums += replica.strategy->evaluate_batch(&batch, evaluation);
    }
    left.sums = sums.tensor();
    comm.all_reduce(left.sums)->wait();
    replica.strategy->visit_state([&](const TrainingState& piece) {
      for (const auto& [name, tensor] : piece.model) {
        left.state.model.push_back({name, tensor.detach().clone()});
      }
      for (const auto& [name, tensor] : piece.optimizer) {
        left.state.optimizer.push_back({name, tensor.clone()});
      }
    });
    return left;
  });
}

// Returns the pieces of the state that all ranks visited.
TrainingState state_of(const std::vector<Left>& ranks) {
  TrainingState all;
  for (const auto& [state, sums] : ranks) {
    all.model.insert(all.model.end(), state.model.begin(), state.model.end());
    all.optimizer.insert(
        all.optimizer.end(), state.optimizer.begin(), state.optimizer.end());
  }
  return all;
}

void expect_same_tensors(
    const std::vector<NamedTensor>& found, const std::vector<NamedTensor>& wanted) {
  std::map<std::string, at::Tensor> by_name;
  for (const auto& entry : found) {
    by_name[entry.name] = entry.tensor;
  }
  EXPECT_EQ(found.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) {
    ASSERT_EQ(by_name.count(name), 1u) << name;
    EXPECT_TRUE(by_name[name].equal(tensor)) << name;
  }
}

TEST(Pipeline, CheckpointAndEvaluationEqualThoseOfTheWholeModel) {
  StrategyOptions sequential;
  sequential.kind = StrategyKind::sequential;
  for (const auto& layers : {two_norm_layers(), small_net_layers()}) {
    const auto whole = run(1, sequential, 4, layers)[0];
    for (const std::string backend : {"thread", "shm", "gloo"}) {
      for (const int stages : {2, 4}) {
        const auto ranks = run(stages, pipeline(stages), 4, layers, backend);
        expect_same_tensors(ranks[0].state.model, whole.state.model);
        expect_same_tensors(ranks[0].state.optimizer, whole.state.optimizer);
        EXPECT_TRUE(ranks[0].sums.equal(whole.sums)) << ranks[0].sums;
      }
    }
  }
}

TEST(Pipeline, ReplicasEqualDataParallelWithBatchNorm) {
  const auto whole = run(2, StrategyOptions(), 4, two_norm_layers());
  for (const auto state : {Sharding::none, Sharding::optimizer}) {
    SCOPED_TRACE(name_of(state));
    auto options = pipeline(3, 2);
    options.shard = state;
    const auto grid = run(6, options, 4, two_norm_layers());
    const auto found = state_of(grid);
    expect_same_tensors(found.model, whole[0].state.model);
    expect_same_tensors(found.optimizer, whole[0].state.optimizer);
    EXPECT_TRUE(grid[0].sums.equal(whole[0].sums));
  }
}

TEST(Pipeline, StagesReadTheDataOfTheirReplicaAndOnlyTheLastCounts) {
  const auto shards = on_each_rank("thread", 6, [](Communicator& comm) {
    const Replica replica(
        make_small_model(small_net_layers()), comm, pipeline(3, 2), {});
    return replica.strategy->data_shard();
  });
  for (size_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(shards[rank].num_shards, 2);
    EXPECT_EQ(shards[rank].shard, rank / 3);
    EXPECT_EQ(shards[rank].counted, rank % 3 == 2);
  }
}

TEST(Pipeline, ReplicasStartWithTheParametersOfTheFirst) {
  const auto parameters = on_each_rank("thread", 4, [](Communicator& comm) {
    const auto seed = static_cast<uint64_t>(comm.rank());
    Replica replica(
        make_small_model(small_net_layers(), seed), comm, pipeline(2, 2), {});
    replica.strategy->start();
    return replica.parameters();
  });
  EXPECT_TRUE(parameters[2].equal(parameters[0]));
  EXPECT_TRUE(parameters[3].equal(parameters[1]));
  EXPECT_NE(parameters[1].numel(), parameters[0].numel());
}

TEST(Pipeline, FailedStageEndsTheOthers) {
  expect_error<Error>(
      [] {
        run_backend("thread", 3, [](Communicator& comm) {
          Replica replica(make_small_model(small_net_layers()), comm, pipeline(3), {});
          replica.strategy->start();
          if (comm.rank() == 1) {
            throw ConfigError("[test] stage 1 stops");
          }
          replica.strategy->train_step(micro_batches(0, 4), step_of(0.1));
        });
      },
      {"stage 1 stops"});
}

TEST(Pipeline, RejectsGridsThatDoNotFit) {
  const auto refused = [](const StrategyOptions& options, int size) {
    return error_of<ConfigError>([&] {
      run_backend("thread", size, [&](Communicator& comm) {
        Replica(make_small_model(small_net_layers()), comm, options, {});
      });
    });
  };
  expect_parts(refused(pipeline(5), 5), {"5 stages", "conv1 conv2 fc1 fc2"});
  expect_parts(refused(pipeline(2, 3), 4), {"2 stages x 3 replicas", "2 x 2"});
}

}  // namespace tandem::pipeline_test

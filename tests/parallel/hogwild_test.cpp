// Ranks with one shared set of parameters.

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/parallel/strategies/shared_parameters.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"

namespace tandem::hogwild_test {

using testing::Each;
using testing::HasSubstr;

StrategyOptions hogwild() {
  StrategyOptions options;
  options.kind = StrategyKind::hogwild;
  return options;
}

// A rank that shares its parameters.
struct SharingRank {
  std::unique_ptr<Model> model;
  ModelArenas arenas;
  std::unique_ptr<StageExecutor> executor;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Strategy> strategy;

  explicit SharingRank(Communicator& comm, uint64_t model_seed = 1)
      : model(make_small_model(small_net_layers(), model_seed)),
        arenas(model->parameters(), model->buffers(), shared(comm, *model)),
        executor(make_eager_executor(
            *model, arenas, {{LossKind::nll, Reduction::mean}, true, true})),
        optimizer(make_optimizer({}, arenas.parameters(), arenas.gradients())),
        strategy(make_strategy(hogwild(), {comm, *executor, arenas, *optimizer})) {}

  static ModelArenaOptions shared(Communicator& comm, const Model& model) {
    ModelArenaOptions options;
    options.allocate_parameters = share_parameters(comm, model.parameters());
    return options;
  }
};

class Sharing : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Backends, Sharing, testing::Values("thread", "shm", "gloo"));

TEST_P(Sharing, RanksStartWithTheParametersOfRank0AndShareWrites) {
  const auto before = std::make_unique<Replica>(
      make_small_model(small_net_layers(), 1), *make_single_communicator(),
      StrategyOptions(), OptimizerOptions());
  const auto seen = on_each_rank(GetParam(), 3, [](Communicator& comm) {
    SharingRank rank(comm, 1 + static_cast<uint64_t>(comm.rank()));
    rank.strategy->start();
    std::vector<std::string> hashes = {rank.arenas.parameters_sha256()};
    comm.barrier();
    if (comm.rank() == 2) {
      rank.model->parameters()[0].tensor.detach().add_(1);
    }
    comm.barrier();
    hashes.push_back(rank.arenas.parameters_sha256());
    comm.barrier();
    return hashes;
  });
  for (const auto& hashes : seen) {
    EXPECT_EQ(hashes[0], before->arenas.parameters_sha256());
    EXPECT_NE(hashes[1], hashes[0]);
    EXPECT_EQ(hashes[1], seen[2][1]);
  }
}

TEST_P(Sharing, DifferentModelsAreAnError) {
  const auto messages = on_each_rank(GetParam(), 2, [](Communicator& comm) {
    const auto weight = at::zeros({2 + comm.rank()}).set_requires_grad(true);
    return error_of<ConfigError>([&] { share_parameters(comm, {{"weight", weight}}); });
  });
  EXPECT_THAT(messages, Each(HasSubstr("the models differ")));
}

TEST_P(Sharing, StepUsesTheRanksOwnBatchAndIsVisibleToOthers) {
  const auto comm = make_single_communicator();
  StrategyOptions options = hogwild();
  options.kind = StrategyKind::sequential;
  Replica alone(make_small_model(small_net_layers()), *comm, options, {});
  alone.strategy->start();
  alone.strategy->train_step({first_batch(6)}, step_of(0.1));
  const auto after = alone.arenas.parameters_sha256();

  const auto hashes = on_each_rank(GetParam(), 2, [](Communicator& group) {
    SharingRank rank(group);
    rank.strategy->start();
    std::vector<Batch> mine;
    if (group.rank() == 1) {
      mine = {first_batch(6)};
      // The loader counts the samples of both ranks, but a step uses only its own.
      mine[0].global_count = 12;
    }
    const auto sums = rank.strategy->train_step(mine, step_of(0.1));
    TANDEM_CHECK(sums.values().samples == 6 * group.rank(), "samples");
    rank.strategy->end_epoch(false);
    return rank.arenas.parameters_sha256();
  });
  EXPECT_EQ(hashes, std::vector<std::string>(2, after));
}

TEST(Hogwild, OneRankHasTheBitsOfSequential) {
  RunOptions options;
  options.tail = Tail::keep;
  options.data_size = 61;
  options.micro_batches = 2;
  const auto reference = train_sequentially(options);
  options.strategy.kind = StrategyKind::hogwild;
  const auto comm = make_single_communicator();
  EXPECT_EQ(train_small_net(*comm, options).sha256, reference.sha256);
}

TEST(Hogwild, UnsharedArenasAreAnError) {
  expect_error<ConfigError>(
      [] {
        run_backend("thread", 2, [](Communicator& comm) {
          Replica apart(make_small_model(small_net_layers()), comm, hogwild(), {});
          apart.strategy->start();
        });
      },
      {"share_parameters()"});
}

TEST(Hogwild, CheckpointStateIsACopy) {
  const auto kept = on_each_rank("thread", 2, [](Communicator& comm) {
    SharingRank rank(comm);
    rank.strategy->start();
    const auto before = rank.arenas.parameters_sha256();
    const auto state = rank.strategy->collect_state();
    rank.strategy->train_step({first_batch(6)}, step_of(0.1));
    rank.strategy->end_epoch(false);
    TANDEM_CHECK(before != rank.arenas.parameters_sha256(), "no step");
    comm.barrier();
    if (comm.rank() == 0) {
      for (size_t i = 0; i < rank.model->parameters().size(); ++i) {
        rank.model->parameters()[i].tensor.detach().copy_(state.model[i].tensor);
      }
    }
    comm.barrier();
    return before == rank.arenas.parameters_sha256();
  });
  EXPECT_THAT(kept, Each(true));
}

TEST(Hogwild, ReportsConsistencyAndShard) {
  const auto shards = on_each_rank("thread", 3, [](Communicator& comm) {
    SharingRank rank(comm);
    TANDEM_CHECK(
        rank.strategy->consistency() == Consistency::asynchronous, "consistency");
    const auto shard = rank.strategy->data_shard();
    return std::to_string(shard.shard) + "/" + std::to_string(shard.num_shards);
  });
  EXPECT_EQ(shards, (std::vector<std::string>{"0/3", "1/3", "2/3"}));
}

}  // namespace tandem::hogwild_test

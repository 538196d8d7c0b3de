// Mistakes in custom loops, which DistributedDataParallel reports by rank instead of
// training a wrong model.

#include "tandem/parallel/ddp/replica_guard.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/distributed_sampler.h"
#include "tandem/data/loader.h"
#include "tandem/parallel/ddp/distributed_data_parallel.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/data/some_samples.h"

namespace tandem::replica_guard_test {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr int64_t kSamples = 24;
constexpr int64_t kBatch = 2;

// A loop as in docs/start/own-loop.md, on one rank.
struct Loop {
  explicit Loop(Communicator& comm, const DistributedDataParallelOptions& options = {})
      : rank(comm.rank()),
        ddp(*net, comm, options),
        sampler{kSamples, comm.size(), comm.rank()} {}

  void step(const std::vector<int64_t>& samples) {
    if (optimizer == nullptr) {
      optimizer = std::make_unique<torch::optim::SGD>(trained->parameters(), rate);
    }
    optimizer->zero_grad();
    const auto inputs = at::tensor(samples, at::kFloat).view({-1, 1}) / kSamples;
    at::mse_loss(trained->forward(inputs), 3 * inputs).backward();
    optimizer->step();
  }

  void run(int64_t epochs, int64_t most_steps = kSamples) {
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      const auto mine = shard_indices(sampler, epoch);
      for (size_t at = 0; at + kBatch <= mine.size(); at += kBatch) {
        if (most_steps-- > 0) {
          step(
              {mine.begin() + static_cast<int64_t>(at),
               mine.begin() + static_cast<int64_t>(at) + kBatch});
        }
      }
    }
  }

  int rank;
  torch::nn::Linear net = torch::nn::Linear(1, 1);
  DistributedDataParallel ddp;
  SamplerOptions sampler;
  double rate = 0.1;
  // The module that the loop trains.
  torch::nn::Linear trained = net;
  std::unique_ptr<torch::optim::SGD> optimizer;
};

// Returns the error of each rank's loop, "(no error)" for none.
std::vector<std::string> errors_of(
    int size, const std::function<void(Loop&)>& body,
    const DistributedDataParallelOptions& options = {},
    const std::string& backend = "thread") {
  return on_each_rank(backend, size, [&](Communicator& comm) {
    return error_of<Error>([&] {
      Loop loop(comm, options);
      body(loop);
      loop.ddp.check();
    });
  });
}

struct Mistake {
  const char* name;
  std::function<void(Loop&)> loop;
  // Errors on two and on three ranks.
  const char* of_two;
  const char* of_three;
};

std::ostream& operator<<(std::ostream& out, const Mistake& mistake) {
  return out << mistake.name;
}

class PlantedMistake : public testing::TestWithParam<Mistake> {};

TEST_P(PlantedMistake, IsAnErrorThatNamesTheRanks) {
  for (const auto* backend : {"thread", "shm", "gloo"}) {
    EXPECT_THAT(
        errors_of(2, GetParam().loop, {}, backend), Each(HasSubstr(GetParam().of_two)))
        << backend;
    EXPECT_THAT(
        errors_of(3, GetParam().loop, {}, backend),
        Each(HasSubstr(GetParam().of_three)))
        << backend;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, PlantedMistake,
    testing::Values(
        Mistake{
            "WeightsOfRank1ChangedAfterWrapping",
            [](Loop& loop) {
              loop.net->bias.detach().add_(loop.rank == 1 ? 1 : 0);
              loop.run(1);
            },
            "'bias' differs between rank 0 and rank 1 in backward 1;",
            "'bias' differs between rank 0 and rank 1 in backward 1;"},
        Mistake{
            "WeightsOfRank0ChangedAfterTheLastStep",
            [](Loop& loop) {
              loop.run(1);
              loop.net->weight.detach().add_(loop.rank == 0 ? 1 : 0);
            },
            "'weight' differs between rank 0 and rank 1 after 6 backwards;",
            "'weight' differs between rank 0 and ranks 1 and 2 after 4 backwards;"},
        Mistake{
            "AllRanksReadAllSamples",
            [](Loop& loop) {
              loop.sampler = {kSamples};
              loop.run(1);
            },
            "ranks 0 and 1 read all samples: num_shards of their samplers is 1, "
            "expected 2;",
            "ranks 0 to 2 read all samples: num_shards of their samplers is 1, "
            "expected 3;"},
        Mistake{
            "TwoRanksReadOneShard",
            [](Loop& loop) {
              loop.sampler.shard = loop.rank / 2;
              loop.run(1);
            },
            "ranks 0 and 1 read the same samples: shard of their samplers is 0,",
            "ranks 0 and 1 read the same samples: shard of their samplers is 0,"},
        Mistake{
            "ACloneIsTrained",
            [](Loop& loop) {
              loop.trained = torch::nn::Linear(
                  std::dynamic_pointer_cast<torch::nn::LinearImpl>(loop.net->clone()));
              loop.run(2);
            },
            "ranks 0 and 1 read training samples, but ran no backward of the wrapped",
            "ranks 0 to 2 read training samples, but ran no backward of the wrapped"},
        Mistake{
            "Rank1HasAnotherLearningRate",
            [](Loop& loop) {
              loop.rate = loop.rank == 1 ? 0.2 : 0.1;
              loop.run(1);
            },
            "differs between rank 0 and rank 1 in backward 2;",
            "differs between rank 0 and rank 1 in backward 2;"},
        Mistake{
            "Rank1HasAnotherSeed",
            [](Loop& loop) {
              loop.sampler.seed = loop.rank == 1 ? 7 : 0;
              loop.run(1);
            },
            "seed of the samplers is 0 on rank 0, 7 on rank 1, expected one value;",
            "seed of the samplers is 0 on ranks 0 and 2, 7 on rank 1, expected one"},
        Mistake{
            "Rank1HasFewerSamples",
            [](Loop& loop) {
              loop.sampler.size = loop.rank == 1 ? 6 : kSamples;
              loop.run(1);
            },
            "size of the samplers is 6 on rank 1, 24 on rank 0, expected one value;",
            "size of the samplers is 6 on rank 1, 24 on ranks 0 and 2, expected one"}),
    [](const auto& row) { return std::string(row.param.name); });

// The ranks with more steps wait for rank 1, which calls check().
TEST(ReplicaGuard, AnotherNumberOfStepsIsAnErrorThatNamesTheRanks) {
  for (const int size : {2, 3}) {
    for (const auto* backend : {"thread", "shm"}) {
      const auto errors = errors_of(
          size, [](Loop& loop) { loop.run(1, loop.rank == 1 ? 2 : kSamples); }, {},
          backend);
      EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"))))
          << backend;
    }
  }
}

TEST(ReplicaGuard, ARankThatLeavesEarlyIsAnErrorThatNamesIt) {
  for (const int size : {2, 3}) {
    std::vector<std::string> errors(static_cast<size_t>(size));
    const auto run = [&](Communicator& comm) {
      errors[static_cast<size_t>(comm.rank())] = error_of<CommError>([&] {
        Loop loop(comm);
        loop.run(1, comm.rank() == 1 ? 2 : kSamples);
      });
      // The communicator is destroyed.
      throw DataError("a rank has ended");
    };
    EXPECT_THROW(run_shm_ranks(size, run), DataError);
    EXPECT_EQ(errors[1], "(no error)");
    EXPECT_THAT(errors[0], HasSubstr("rank 1"));
  }
}

// --- loops without mistakes ---

TEST(ReplicaGuard, CorrectLoopsTrainWithEverySampler) {
  const std::vector<std::function<void(Loop&)>> loops = {
      [](Loop& loop) { loop.run(40); },
      [](Loop& loop) {
        DistributedSampler sampler(loop.sampler);
        for (int64_t epoch = 0; epoch < 40; ++epoch) {
          sampler.set_epoch(epoch);
          while (const auto batch = sampler.next(kBatch)) {
            loop.step({batch->begin(), batch->end()});
          }
        }
      },
      [](Loop& loop) {
        const auto data = dataset_of(
            kSamples, make_samples<float>({1}, kSamples, [](int64_t i) { return i; }),
            make_samples<float>({1}, kSamples, [](int64_t i) { return i; }));
        LoaderOptions options;
        options.batch_size = kBatch;
        Loader loader(data, loop.sampler, options);
        Batch batch;
        for (int64_t epoch = 0; epoch < 40; ++epoch) {
          for (loader.seek(epoch); loader.next(batch);) {
            const auto* samples = batch.samples.data_ptr<int64_t>();
            loop.step({samples, samples + batch.count()});
          }
        }
      }};
  for (const int size : {1, 2, 3}) {
    for (const auto& loop : loops) {
      EXPECT_THAT(errors_of(size, loop), Each("(no error)")) << size;
    }
  }
}

// A loader may be constructed before the loop's first epoch, and rank 0 may evaluate
// alone.
TEST(ReplicaGuard, IgnoresReadsOfEvaluations) {
  const auto errors = errors_of(3, [](Loop& loop) {
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      loop.run(1);
      const at::NoGradGuard no_grad;
      const auto samples = shard_indices({7, 1, 0, 0, false, Tail::keep}, 0);
      TANDEM_CHECK(samples.size() == 7, "wrong samples");
    }
  });
  EXPECT_THAT(errors, Each("(no error)"));
}

TEST(ReplicaGuard, RanksMayHaveTheirOwnData) {
  const auto own_sizes = [](Loop& loop) {
    loop.sampler = {kSamples + 1 - loop.rank % 2};
    loop.run(1);
  };
  EXPECT_THAT(errors_of(3, own_sizes), Each("(no error)"));
  DistributedDataParallelOptions options;
  options.check_samples = false;
  const auto equal_sizes = [](Loop& loop) {
    loop.sampler = {kSamples};
    loop.run(1);
  };
  EXPECT_THAT(errors_of(3, equal_sizes, options), Each("(no error)"));
}

// --- options ---

TEST(ReplicaGuard, DriftCheckOffAllowsDifferentParameters) {
  DistributedDataParallelOptions options;
  options.drift_check = DriftCheck::off;
  const auto errors = errors_of(
      2,
      [](Loop& loop) {
        loop.rate = 0.1 + loop.rank;
        loop.run(1);
      },
      options);
  EXPECT_THAT(errors, Each("(no error)"));
}

TEST(ReplicaGuard, ResyncContinuesWithTheParametersOfRank0) {
  const auto values = on_each_rank("thread", 3, [](Communicator& comm) {
    DistributedDataParallelOptions options;
    options.drift_check = DriftCheck::resync;
    Loop loop(comm, options);
    loop.net->weight.detach().fill_(comm.rank() + 5);
    loop.ddp.check();
    return loop.net->weight.item<double>();
  });
  EXPECT_THAT(values, Each(5));
}

TEST(ReplicaGuard, ChecksInBackwards1248AndEveryInterval) {
  const auto checked = [](int64_t every, int64_t step) {
    DistributedDataParallelOptions options;
    options.check_every = every;
    const auto errors = on_each_rank("thread", 2, [&](Communicator& comm) {
      Loop loop(comm, options);
      return error_of<Error>([&] {
        for (int64_t i = 1; i <= step; ++i) {
          if (i == step) {
            loop.net->weight.detach().add_(comm.rank());
          }
          loop.step({1 + comm.rank(), 5});
        }
      });
    });
    return errors[0] != "(no error)";
  };
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= 21; ++step) {
    if (checked(10, step)) {
      steps.push_back(step);
    }
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 4, 8, 10, 20}));
  EXPECT_FALSE(checked(0, 1));
}

TEST(ReplicaGuard, RejectsInvalidOptions) {
  DistributedDataParallelOptions options;
  options.check_every = -1;
  EXPECT_THAT(
      errors_of(
          2, [](Loop&) {}, options),
      Each(HasSubstr("check_every is -1, expected 0 or more")));
  const auto errors = on_each_rank("thread", 2, [](Communicator& comm) {
    DistributedDataParallelOptions chosen;
    chosen.check_every = 10 + comm.rank();
    return error_of<ConfigError>([&] { const Loop loop(comm, chosen); });
  });
  EXPECT_THAT(errors, Each(HasSubstr("drift_check differ: rank 0 and rank 1")));
}

// --- messages without an error ---

TEST(ReplicaGuard, TheDestructorReportsARankThatTrainedAClone) {
  for (const bool reads : {true, false}) {
    testing::internal::CaptureStderr();
    // Other tests of this process may have printed the warnings of the first ranks.
    on_each_rank("thread", 7, [&](Communicator& comm) {
      Loop loop(comm);
      loop.trained = torch::nn::Linear(1, 1);
      if (reads) {
        loop.run(1);
      } else {
        loop.step({1, 2});
      }
      return 0;
    });
    const auto text = testing::internal::GetCapturedStderr();
    for (const char* rank : {"[ddp] rank 5 ", "[ddp] rank 6 "}) {
      EXPECT_THAT(
          text, HasSubstr(
                    rank + std::string(
                               reads ? "read training samples, but ran no backward"
                                     : "ran no backward of the module")));
    }
  }
}

// A loop may read its samples without tandem.
TEST(ReplicaGuard, WarnsOfEqualGradients) {
  testing::internal::CaptureStderr();
  EXPECT_THAT(
      errors_of(
          3,
          [](Loop& loop) {
            loop.step({loop.rank == 0 ? 3 : 4, 5});
            loop.step({6, 7});
          }),
      Each("(no error)"));
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr("ranks 1 and 2 had equal gradients in the first backward"));
}

// A rank without data runs backward on a loss times zero.
TEST(ReplicaGuard, DoesNotWarnOfZeroGradients) {
  testing::internal::CaptureStderr();
  on_each_rank("thread", 3, [](Communicator& comm) {
    Loop loop(comm);
    const auto inputs = at::full({1, 1}, 2.0);
    (loop.net->forward(inputs).sum() * (comm.rank() == 0 ? 1 : 0)).backward();
    return 0;
  });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace tandem::replica_guard_test

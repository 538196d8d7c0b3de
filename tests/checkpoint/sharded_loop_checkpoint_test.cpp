// Checkpoints of custom loops with a ShardedOptimizer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <fstream>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/checkpoint/loop_checkpoint.h"
#include "tandem/parallel/ddp/local_sgd.h"
#include "tandem/parallel/ddp/sharded_optimizer.h"
#include "tests/base/test_tools.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::sharded_loop_checkpoint_test {

using testing::HasSubstr;

constexpr Sharding kAll[] = {
    Sharding::none, Sharding::optimizer, Sharding::gradients, Sharding::parameters};

// A network with several buckets, buffers and a frozen parameter.
torch::nn::Sequential make_net() {
  torch::nn::Sequential net(
      torch::nn::Linear(6, 13), torch::nn::BatchNorm1d(13), torch::nn::Tanh(),
      torch::nn::Linear(13, 9), torch::nn::Tanh(), torch::nn::Linear(9, 1));
  net->to(at::kDouble);
  // Thread ranks share LibTorch's generator, so the values are not random.
  const torch::NoGradGuard no_grad;
  double phase = 0;
  for (auto& parameter : net->parameters()) {
    const auto numbers = at::arange(parameter.numel(), at::kDouble);
    parameter.copy_((0.37 * numbers + phase++).sin().view(parameter.sizes()) * 0.4);
  }
  net->parameters()[4].set_requires_grad(false);
  return net;
}

DistributedDataParallelOptions sharded(Sharding kind, int64_t group) {
  DistributedDataParallelOptions options;
  options.shard = kind;
  options.shard_group = group;
  options.bucket_bytes = 600;
  return options;
}

struct Loop {
  Loop(
      Communicator& group, Sharding kind, const std::string& directory,
      int64_t shard_group = StrategyOptions::kAllRanks)
      : comm(group),
        net(make_net()),
        ddp(*net, group, sharded(kind, shard_group)),
        optimizer(ddp, torch::optim::AdamOptions(0.01).amsgrad(true)),
        checkpoint(directory, *net, optimizer, group) {
    checkpoint.add_state(scaler.state().named_views());
  }

  void train_until(int64_t step) {
    for (; at.step < step; ++at.step) {
      optimizer.zero_grad();
      ddp.pass([&] {
        const auto options = at::TensorOptions(at::kDouble);
        const auto x = (at::arange(24, options).view({4, 6}) * (0.3 + comm.rank()) +
                        static_cast<double>(at.step))
                           .sin();
        const auto loss =
            torch::nn::functional::mse_loss(net->forward(x), x.sum(1, true));
        scaler.scale(loss).backward();
      });
      scaler.step(optimizer);
      scaler.update();
    }
  }

  std::string hash() {
    ddp.gather_parameters();
    return ModelArenas(module_state(*net), {}).parameters_sha256();
  }

  Communicator& comm;
  torch::nn::Sequential net;
  DistributedDataParallel ddp;
  ShardedOptimizer<torch::optim::Adam> optimizer;
  GradScaler scaler{[] {
    GradScalerOptions options;
    options.growth_interval = 2;
    return options;
  }()};
  Checkpoint checkpoint;
  Position at;
};

void save_at_step_3(
    const std::string& backend, int size, Sharding kind, const std::string& directory,
    int64_t group = StrategyOptions::kAllRanks) {
  run_backend(backend, size, [&](Communicator& comm) {
    Loop loop(comm, kind, directory, group);
    loop.train_until(3);
    loop.checkpoint.save(loop.at);
  });
}

std::vector<std::string> resumed(
    const std::string& backend, int size, Sharding kind, const std::string& directory,
    int64_t group = StrategyOptions::kAllRanks) {
  return on_each_rank(backend, size, [&](Communicator& comm) {
    Loop loop(comm, kind, directory, group);
    TANDEM_CHECK(loop.checkpoint.resume(loop.at), "no checkpoint");
    TANDEM_CHECK(loop.at.step == 3, "another step");
    TANDEM_CHECK(loop.scaler.scale() == 131072, "another scale");
    loop.train_until(6);
    return loop.hash();
  });
}

TEST(ShardedLoopCheckpoints, ResumeOnOtherRanksWithOtherShardingInEqualBits) {
  const Scratch scratch;
  for (const auto kind : kAll) {
    save_at_step_3("shm", 3, kind, scratch / name_of(kind));
  }
  for (const int size : {1, 2, 3, 4}) {
    const auto expected = resumed("shm", size, Sharding::none, scratch / "none")[0];
    for (const auto saved : kAll) {
      for (const auto kind : kAll) {
        SCOPED_TRACE(
            std::string(name_of(saved)) + ", then " + name_of(kind) + " on " +
            std::to_string(size));
        EXPECT_THAT(
            resumed("shm", size, kind, scratch / name_of(saved)),
            testing::Each(expected));
      }
    }
  }
}

std::string undisturbed(
    const std::string& backend, int size, Sharding kind, const std::string& directory,
    int64_t group = StrategyOptions::kAllRanks) {
  return on_each_rank(backend, size, [&](Communicator& comm) {
    Loop loop(comm, kind, directory, group);
    loop.train_until(6);
    return loop.hash();
  })[0];
}

TEST(ShardedLoopCheckpoints, ContinueWithTheBitsOfAnUndisturbedLoop) {
  const Scratch scratch;
  for (const char* backend : {"thread", "shm", "gloo"}) {
    for (const auto kind : kAll) {
      const auto directory = scratch / (std::string(backend) + name_of(kind));
      save_at_step_3(backend, 3, kind, directory);
      EXPECT_THAT(
          resumed(backend, 3, kind, directory),
          testing::Each(undisturbed(backend, 3, kind, directory)))
          << name_of(kind) << " over " << backend;
    }
  }
}

TEST(ShardedLoopCheckpoints, OfShardGroupsHaveOneCopyOfTheState) {
  const Scratch scratch;
  save_at_step_3("shm", 4, Sharding::parameters, scratch / "groups", 2);
  const auto names = list_directory(checkpoint_path(scratch / "groups", 3));
  EXPECT_THAT(
      names, testing::UnorderedElementsAre(
                 "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                 "model.safetensors.index.json", "training-00001-of-00002.safetensors",
                 "training-00002-of-00002.safetensors", "training.safetensors"));
  EXPECT_THAT(
      resumed("shm", 4, Sharding::parameters, scratch / "groups", 2),
      testing::Each(undisturbed("shm", 4, Sharding::parameters, scratch / "new", 2)));
}

TEST(ShardedLoopCheckpoints, DivideTheState) {
  const Scratch scratch;
  save_at_step_3("thread", 3, Sharding::parameters, scratch.path());
  const auto path = checkpoint_path(scratch.path(), 3);
  for (const char* shard : {"1", "2", "3"}) {
    const auto name = path + "/training-0000" + shard + "-of-00003.safetensors";
    const auto file = parse_safetensors(read_file(name), name);
    const auto means = std::count_if(
        file.tensors.begin(), file.tensors.end(),
        [](const NamedTensor& entry) { return entry.name.rfind("exp_avg/", 0) == 0; });
    EXPECT_GE(means, 1) << name;
    EXPECT_LE(means, 4) << name;
  }
}

TEST(ShardedLoopCheckpoints, RejectOtherStateAndDamage) {
  const Scratch scratch;
  save_at_step_3("thread", 2, Sharding::parameters, scratch.path());
  const auto resume = [&](bool with_scaler) {
    return error_of<Error>([&] {
      run_backend("thread", 2, [&](Communicator& comm) {
        Loop loop(comm, Sharding::parameters, scratch.path());
        Checkpoint checkpoint(scratch.path(), *loop.net, loop.optimizer, comm);
        (with_scaler ? loop.checkpoint : checkpoint).resume(loop.at);
      });
    });
  };
  EXPECT_THAT(resume(false), HasSubstr("grad_scaler"));
  const auto shard =
      checkpoint_path(scratch.path(), 3) + "/training-00002-of-00002.safetensors";
  remove_all(shard);
  EXPECT_THAT(resume(true), HasSubstr("training-00002-of-00002"));
}

TEST(ShardedLoopCheckpoints, AddTheStateOfLocalSgd) {
  const Scratch scratch;
  const auto train = [&](Communicator& comm, bool resumes, int64_t last) {
    auto net = make_net();
    LocalSgdOptions options;
    options.average_every = 2;
    options.outer_optimizer = OuterOptimizer::nesterov;
    LocalSgd averaging(*net, comm, options);
    torch::optim::SGD optimizer(net->parameters(), 0.05);
    Checkpoint checkpoint(scratch.path(), *net, optimizer, comm);
    checkpoint.add_state(averaging.state());
    Position at;
    TANDEM_CHECK(!resumes || checkpoint.resume(at), "no checkpoint");
    for (; at.step < last; ++at.step) {
      optimizer.zero_grad();
      net->forward(at::ones({4, 6}, at::kDouble) * (comm.rank() + at.step))
          .square()
          .mean()
          .backward();
      optimizer.step();
      averaging.step();
    }
    if (last == 4) {
      checkpoint.save(at);
    }
    return ModelArenas(module_state(*net), {}).parameters_sha256();
  };
  const auto on_ranks = [&](bool resumes, int64_t last) {
    return on_each_rank(
        "thread", 3, [&](Communicator& comm) { return train(comm, resumes, last); })[0];
  };
  const auto whole = on_ranks(false, 8);
  on_ranks(false, 4);
  EXPECT_EQ(on_ranks(true, 8), whole);
}

}  // namespace tandem::sharded_loop_checkpoint_test

// Custom loops whose parameters, gradients or optimizer state are sharded.

#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <limits>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/optim/torch_optim.h"
#include "tandem/parallel/ddp/sharded_optimizer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"

namespace tandem::sharded_loop_test {

using testing::HasSubstr;

constexpr Sharding kAll[] = {
    Sharding::none, Sharding::optimizer, Sharding::gradients, Sharding::parameters};

at::Tensor wave(std::vector<int64_t> dims, double phase) {
  int64_t count = 1;
  for (const int64_t dim : dims) {
    count *= dim;
  }
  return at::sin(0.37 * at::arange(count, at::kDouble) + phase).view(dims);
}

// A network with several buckets and a frozen parameter.
torch::nn::Sequential make_net() {
  torch::nn::Sequential net(
      torch::nn::Linear(6, 13), torch::nn::Tanh(), torch::nn::Linear(13, 9),
      torch::nn::Tanh(), torch::nn::Linear(9, 1));
  net->to(at::kDouble);
  const torch::NoGradGuard no_grad;
  double phase = 0;
  for (auto& parameter : net->parameters()) {
    parameter.copy_(0.4 * wave(parameter.sizes().vec(), phase++));
  }
  net->parameters()[2].set_requires_grad(false);
  return net;
}

struct LoopOptions {
  Sharding shard = Sharding::none;
  double max_norm = 0;
  int passes_per_step = 1;
  int steps = 5;
};

DistributedDataParallelOptions ddp_options(Sharding shard) {
  DistributedDataParallelOptions options;
  options.shard = shard;
  options.bucket_bytes = 600;
  return options;
}

at::Tensor loss_of(torch::nn::Sequential& net, int rank, int step) {
  const auto x = wave({4, 6}, 10 * rank + step);
  return torch::nn::functional::mse_loss(net->forward(x), x.sum(1, true));
}

// Trains in a custom loop, and returns the hash of the parameters.
template <typename Optimizer, typename Options>
std::string train(Communicator& comm, const LoopOptions& loop, const Options& options) {
  auto net = make_net();
  DistributedDataParallel ddp(*net, comm, ddp_options(loop.shard));
  ShardedOptimizer<Optimizer> optimizer(ddp, options);
  for (int step = 0; step < loop.steps; ++step) {
    optimizer.zero_grad();
    for (int i = 0; i + 1 < loop.passes_per_step; ++i) {
      const auto scope = ddp.no_sync();
      ddp.pass([&] { loss_of(net, comm.rank(), 7 * step + i).backward(); });
    }
    ddp.pass([&] { loss_of(net, comm.rank(), step).backward(); });
    if (loop.max_norm > 0) {
      ddp.clip_grad_norm(loop.max_norm);
    }
    optimizer.step();
  }
  ddp.check();
  ddp.gather_parameters();
  return ddp.arenas().parameters_sha256();
}

template <typename Optimizer, typename Options>
void expect_the_bits_of_replicas(
    const std::string& backend, int size, LoopOptions loop, const Options& options) {
  loop.shard = Sharding::none;
  const auto body = [&](Communicator& comm) {
    return train<Optimizer>(comm, loop, options);
  };
  const auto replicated = on_each_rank(backend, size, body);
  for (const auto shard : kAll) {
    SCOPED_TRACE(
        std::string(name_of(shard)) + ", " + std::to_string(size) + " over " + backend);
    loop.shard = shard;
    EXPECT_THAT(on_each_rank(backend, size, body), testing::Each(replicated[0]));
  }
}

TEST(ShardedLoop, HasTheBitsOfReplicas) {
  const auto options = torch::optim::AdamOptions(0.01).weight_decay(0.1).amsgrad(true);
  for (const char* backend : {"thread", "shm", "gloo"}) {
    for (const int size : {1, 2, 3, 4}) {
      // Gloo sums the gradients of more replicas in another order.
      if (std::string(backend) != "gloo" || size <= 2) {
        expect_the_bits_of_replicas<torch::optim::Adam>(backend, size, {}, options);
      }
    }
  }
}

template <typename Optimizer, typename Options>
void expect_the_bits_of_three_replicas(const Options& options) {
  expect_the_bits_of_replicas<Optimizer>("thread", 3, {}, options);
}

TEST(ShardedLoop, HasTheBitsOfReplicasWithOtherOptimizers) {
  namespace optim = torch::optim;
  expect_the_bits_of_three_replicas<optim::SGD>(optim::SGDOptions(0.05).momentum(0.9));
  expect_the_bits_of_three_replicas<optim::AdamW>(optim::AdamWOptions(0.01));
  expect_the_bits_of_three_replicas<optim::Adagrad>(optim::AdagradOptions(0.01));
  expect_the_bits_of_three_replicas<optim::RMSprop>(optim::RMSpropOptions(0.01));
  expect_the_bits_of_three_replicas<Lion>(LionOptions(0.01).weight_decay(0.1));
  expect_the_bits_of_three_replicas<NAdam>(NAdamOptions(0.01));
}

TEST(ShardedLoop, HasTheBitsOfReplicasWithClippingAndSeveralPasses) {
  LoopOptions loop;
  loop.max_norm = 0.3;
  loop.passes_per_step = 3;
  for (const int size : {3, 4}) {
    expect_the_bits_of_replicas<torch::optim::Adam>(
        "shm", size, loop, torch::optim::AdamOptions(0.01));
  }
}

TEST(ShardedLoop, GroupsHaveTheResultsOfReplicas) {
  const auto train_in_groups = [](Communicator& comm, Sharding shard, int64_t group) {
    auto net = make_net();
    auto options = ddp_options(shard);
    options.shard_group = group;
    DistributedDataParallel ddp(*net, comm, options);
    ShardedOptimizer<torch::optim::Adam> optimizer(
        ddp, torch::optim::AdamOptions(0.01));
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      ddp.pass([&] { loss_of(net, comm.rank(), step).backward(); });
      ddp.clip_grad_norm(0.3);
      optimizer.step();
    }
    ddp.check();
    ddp.gather_parameters();
    std::vector<at::Tensor> flat;
    for (const auto& parameter : net->parameters()) {
      flat.push_back(parameter.detach().reshape(-1));
    }
    return at::cat(flat).clone();
  };
  for (const char* backend : {"thread", "shm", "gloo", "hierarchical"}) {
    const auto all = [&](Sharding shard, int64_t group) {
      return on_each_rank(backend, 4, [&](Communicator& comm) {
        return train_in_groups(comm, shard, group);
      });
    };
    const auto expected = all(Sharding::none, StrategyOptions::kAllRanks)[0];
    for (const auto shard : kAll) {
      for (const auto& parameters : all(shard, 2)) {
        EXPECT_LE((parameters - expected).abs().max().item<double>(), 1e-12)
            << name_of(shard) << " over " << backend;
      }
    }
  }
}

TEST(ShardedLoop, RejectsTensorsOfAnotherOptimizerOrOfTheModule) {
  run_backend("thread", 3, [](Communicator& comm) {
    auto net = make_net();
    DistributedDataParallel ddp(*net, comm, ddp_options(Sharding::optimizer));
    using Adam = ShardedOptimizer<torch::optim::Adam>;
    const torch::optim::AdamOptions options(0.01);
    const auto refusal = [&](const std::vector<at::Tensor>& tensors) {
      return error_of<ConfigError>(
          [&] { Adam(ddp, {torch::optim::OptimizerParamGroup(tensors)}, options); });
    };
    EXPECT_THAT(refusal(net->parameters()), HasSubstr("not in own_parameters()"));
    {
      const Adam first(ddp, options);
      EXPECT_THAT(
          refusal({ddp.own_parameters()[0].tensor}),
          HasSubstr("two optimizers have the parameter '"));
    }
    const Adam second(ddp, options);
  });
}

TEST(ShardedLoop, GivesTheOptimizerOnlyAShare) {
  const auto sizes = on_each_rank("thread", 3, [](Communicator& comm) {
    auto net = make_net();
    DistributedDataParallel ddp(*net, comm, ddp_options(Sharding::optimizer));
    int64_t own = 0;
    for (const auto& entry : ddp.own_parameters()) {
      own += entry.tensor.numel();
    }
    return own;
  });
  int64_t all = 0;
  for (const auto& parameter : make_net()->parameters()) {
    all += parameter.requires_grad() ? parameter.numel() : 0;
  }
  EXPECT_EQ(sizes[0] + sizes[1] + sizes[2], all);
  for (const int64_t own : sizes) {
    EXPECT_LT(own, all / 2);
  }
}

TEST(ShardedLoop, GroupsByNameHaveTheirOwnOptions) {
  const auto train_groups = [](Communicator& comm, Sharding shard) {
    auto net = make_net();
    DistributedDataParallel ddp(*net, comm, ddp_options(shard));
    std::vector<at::Tensor> weights;
    std::vector<at::Tensor> biases;
    for (const auto& [name, tensor] : ddp.own_parameters()) {
      const bool is_bias = name.find("bias") != std::string::npos;
      (is_bias ? biases : weights).push_back(tensor);
    }
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(weights);
    groups.emplace_back(
        biases, std::make_unique<torch::optim::SGDOptions>(
                    torch::optim::SGDOptions(0.5).momentum(0.5)));
    ShardedOptimizer<torch::optim::SGD> optimizer(
        ddp, std::move(groups), torch::optim::SGDOptions(0.01));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      loss_of(net, comm.rank(), step).backward();
      optimizer.step();
    }
    return ddp.arenas().parameters_sha256();
  };
  const auto hashes = [&](Sharding shard) {
    return on_each_rank(
        "shm", 3, [&](Communicator& comm) { return train_groups(comm, shard); });
  };
  EXPECT_EQ(hashes(Sharding::gradients), hashes(Sharding::none));
}

TEST(ShardedLoop, ClipsAsTorchDoes) {
  const auto norms = on_each_rank("thread", 3, [](Communicator& comm) {
    auto net = make_net();
    DistributedDataParallel ddp(*net, comm, ddp_options(Sharding::gradients));
    loss_of(net, comm.rank(), 0).backward();
    double squares = 0;
    for (const auto& entry : ddp.own_parameters()) {
      squares += entry.tensor.grad().square().sum().item<double>();
    }
    const auto sums = comm.stack(at::full({1}, squares, at::kDouble), "squares");
    const double norm = std::sqrt(sums.sum().item<double>());
    EXPECT_NEAR(ddp.clip_grad_norm(norm / 2) / norm, 1, 1e-12);
    // With PyTorch's small term in the denominator.
    const double clipped = norm * (norm / 2) / (norm + 1e-6);
    EXPECT_NEAR(ddp.clip_grad_norm(norm) / clipped, 1, 1e-12);
    EXPECT_NEAR(ddp.clip_grad_norm(2 * norm) / clipped, 1, 1e-12);
    return norm;
  });
  EXPECT_GT(norms[0], 0);
}

// --- wrong use ---

template <typename Body>
std::string error_with(Sharding shard, const Body& body) {
  return error_of<ConfigError>([&] {
    run_backend("thread", 3, [&](Communicator& comm) {
      auto net = make_net();
      DistributedDataParallel ddp(*net, comm, ddp_options(shard));
      body(net, ddp);
    });
  });
}

TEST(ShardedLoop, OperatorsOutsideOfAPassAreAnError) {
  const std::string expected =
      "uses a parameter of which this rank has only a part, outside of a pass";
  const auto forward = [](torch::nn::Sequential& net, DistributedDataParallel& ddp) {
    loss_of(net, 0, 0);
    static_cast<void>(ddp);
  };
  EXPECT_THAT(error_with(Sharding::parameters, forward), HasSubstr(expected));
  const auto after_step = [](torch::nn::Sequential& net, DistributedDataParallel& ddp) {
    ShardedOptimizer<torch::optim::SGD> optimizer(ddp, torch::optim::SGDOptions(0.1));
    ddp.pass([&] { loss_of(net, 0, 0).backward(); });
    ddp.gather_parameters();
    loss_of(net, 0, 0);  // allowed
    optimizer.step();
    loss_of(net, 0, 0);
  };
  EXPECT_THAT(error_with(Sharding::parameters, after_step), HasSubstr(expected));
}

TEST(ShardedLoop, UnsetGradientsOfTheShareAreAnError) {
  const auto body = [](torch::nn::Sequential& net, DistributedDataParallel& ddp) {
    at::Tensor(ddp.own_parameters()[0].tensor).mutable_grad() = at::Tensor();
    loss_of(net, 0, 0).backward();
  };
  EXPECT_THAT(
      error_with(Sharding::optimizer, body), HasSubstr("was unset or replaced; call"));
}

TEST(ShardedLoop, RejectsOptions) {
  const auto refusal = [](const DistributedDataParallelOptions& options) {
    return error_of<ConfigError>([&] {
      run_backend("thread", 2, [&](Communicator& comm) {
        auto net = make_net();
        DistributedDataParallel ddp(*net, comm, options);
      });
    });
  };
  auto hooked = ddp_options(Sharding::gradients);
  hooked.bucket_hook = [](Communicator&, const GradBucket&) {
    return std::function<void()>();
  };
  EXPECT_THAT(
      refusal(hooked), HasSubstr("bucket_hook is set and shard is gradients, but"));
  const auto clip = [](torch::nn::Sequential&, DistributedDataParallel& ddp) {
    ddp.clip_grad_norm(0);
  };
  EXPECT_THAT(error_with(Sharding::none, clip), HasSubstr("max_norm is 0.000000"));
  const auto join = [](torch::nn::Sequential&, DistributedDataParallel& ddp) {
    ddp.join([] {});
  };
  EXPECT_THAT(error_with(Sharding::none, join), HasSubstr("Options::join is false"));
}

}  // namespace tandem::sharded_loop_test

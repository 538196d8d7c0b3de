#include "tandem/checkpoint/loop_checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>

#include "tandem/base/error.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/checkpoint/weights.h"
#include "tandem/comm/backends/thread.h"
#include "tandem/optim/torch_optim.h"
#include "tandem/parallel/ddp/distributed_data_parallel.h"
#include "tests/base/test_tools.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::loop_checkpoint_test {

using testing::HasSubstr;

namespace optim = torch::optim;
using Tensors = std::vector<at::Tensor>;

struct OptimizerCase {
  const char* name;
  std::function<std::unique_ptr<optim::Optimizer>(const Tensors&)> make;
};

void PrintTo(const OptimizerCase& one, std::ostream* out) {
  *out << one.name;
}

// Makes an optimizer with two groups of parameters, which have different learning
// rates. LBFGS supports only one group.
template <typename Class, typename Options>
OptimizerCase optimizer_case(const char* name, const Options& options) {
  return {name, [options](const Tensors& parameters) {
            std::vector<optim::OptimizerParamGroup> groups;
            const size_t num_groups = std::is_same_v<Class, optim::LBFGS> ? 1 : 2;
            for (size_t i = 0; i < num_groups; ++i) {
              auto own = std::make_unique<Options>(options);
              own->lr(options.lr() / static_cast<double>(i + 1));
              const auto half = parameters.begin() + 3;
              groups.emplace_back(
                  num_groups == 1 ? parameters
                  : i == 0        ? Tensors(parameters.begin(), half)
                                  : Tensors(half, parameters.end()),
                  std::move(own));
            }
            return std::make_unique<Class>(groups, options);
          }};
}

OptimizerCase sgd(double lr = 0.003) {
  return optimizer_case<optim::SGD>(
      "Sgd", optim::SGDOptions(lr).momentum(0.9).weight_decay(1e-3).nesterov(true));
}

OptimizerCase adam() {
  return optimizer_case<optim::Adam>(
      "Adam", optim::AdamOptions(0.01).betas({0.8, 0.99}).amsgrad(true));
}

// A loop on random numbers, with batch norm and dropout.
struct Loop {
  explicit Loop(const OptimizerCase& optimizer_of = sgd(), int64_t width = 8)
      : net(torch::nn::Linear(4, width), torch::nn::BatchNorm1d(width),
            torch::nn::Dropout(0.3), torch::nn::Linear(width, 2)),
        optimizer(optimizer_of.make(net->parameters())),
        scheduler(*optimizer, 2, 0.7) {}

  void train_until(int64_t step) {
    while (at.step < step) {
      const auto inputs = at::randn({16, 4});
      const auto targets = at::randn({16, 2});
      optimizer->step([&] {
        const at::AutoGradMode with_gradients(true);
        optimizer->zero_grad();
        const auto loss =
            torch::nn::functional::mse_loss(net->forward(inputs), targets);
        loss.backward();
        return loss;
      });
      scheduler.step();
      ++at.step;
      ++at.samples_in_epoch;
    }
  }

  bool resume(const std::string& directory, bool with_scheduler = true) {
    Checkpoint checkpoint = checkpoint_in(directory, with_scheduler);
    return checkpoint.resume(at);
  }

  void save(const std::string& directory) {
    checkpoint_in(directory, true).save(at);
  }

  Checkpoint checkpoint_in(const std::string& directory, bool with_scheduler) {
    Checkpoint checkpoint(directory, *net, *optimizer, *comm);
    if (with_scheduler) {
      checkpoint.set_scheduler(scheduler);
    }
    return checkpoint;
  }

  std::vector<double> learning_rates() const {
    std::vector<double> rates;
    for (auto& group : optimizer->param_groups()) {
      rates.push_back(group.options().get_lr());
    }
    return rates;
  }

  torch::nn::Sequential net;
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::StepLR scheduler;
  std::unique_ptr<Communicator> comm = make_single_communicator();
  Position at;
};

void expect_same_state(const Loop& a, const Loop& b) {
  const auto left = module_state(*a.net);
  const auto right = module_state(*b.net);
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_TRUE(left[i].tensor.equal(right[i].tensor)) << left[i].name;
  }
  EXPECT_EQ(a.learning_rates(), b.learning_rates());
}

class LoopCheckpoint : public testing::TestWithParam<OptimizerCase> {};

TEST_P(LoopCheckpoint, ContinuesWithTheSameBits) {
  const Scratch scratch;
  at::manual_seed(7);
  Loop loop(GetParam());
  loop.train_until(5);
  loop.save(scratch.path());
  loop.train_until(9);

  at::manual_seed(8);
  Loop resumed(GetParam());
  // The checkpoint replaces the state of these steps.
  resumed.train_until(2);
  ASSERT_TRUE(resumed.resume(scratch.path()));
  EXPECT_EQ(resumed.at.step, 5);
  EXPECT_EQ(resumed.at.samples_in_epoch, 5);
  resumed.train_until(9);
  expect_same_state(loop, resumed);
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, LoopCheckpoint,
    testing::Values(
        sgd(), adam(),
        optimizer_case<optim::AdamW>("AdamW", optim::AdamWOptions(0.01).eps(1e-7)),
        optimizer_case<optim::Adagrad>(
            "Adagrad",
            optim::AdagradOptions(0.05).lr_decay(0.1).initial_accumulator_value(0.5)),
        optimizer_case<optim::RMSprop>(
            "RMSprop", optim::RMSpropOptions(0.01).momentum(0.5).centered(true)),
        optimizer_case<Adadelta>("Adadelta", AdadeltaOptions(0.5).rho(0.8)),
        optimizer_case<Adafactor>("Adafactor", AdafactorOptions(0.01).d(1.5)),
        optimizer_case<Adamax>("Adamax", AdamaxOptions(0.01).betas({0.8, 0.99})),
        optimizer_case<Lamb>("Lamb", LambOptions(0.01).weight_decay(0.1)),
        optimizer_case<Lion>("Lion", LionOptions(0.001).weight_decay(0.1)),
        optimizer_case<Muon>("Muon", MuonOptions(0.01).ns_steps(3)),
        optimizer_case<NAdam>("NAdam", NAdamOptions(0.01).momentum_decay(0.01)),
        optimizer_case<RAdam>("RAdam", RAdamOptions(0.01)),
        optimizer_case<optim::LBFGS>(
            "Lbfgs", optim::LBFGSOptions(0.1).max_iter(3).history_size(4)),
        optimizer_case<optim::LBFGS>(
            "LbfgsLineSearch",
            optim::LBFGSOptions(0.1).max_iter(3).line_search_fn("strong_wolfe"))),
    [](const auto& one) { return std::string(one.param.name); });

TEST(LoopCheckpoints, RestoreTheLearningRateOfTheScheduler) {
  const Scratch scratch;
  Loop loop(sgd(0.003));
  loop.train_until(3);
  loop.save(scratch.path());
  EXPECT_EQ(loop.learning_rates(), std::vector<double>({0.003 * 0.7, 0.0015 * 0.7}));
  Loop resumed(sgd(0.1));
  ASSERT_TRUE(resumed.resume(scratch.path()));
  EXPECT_EQ(resumed.learning_rates(), loop.learning_rates());
}

TEST(LoopCheckpoints, HaveTheFormatOfRunsAndNamesOfParameters) {
  const Scratch scratch;
  Loop loop(adam());
  loop.train_until(1);
  loop.save(scratch.path());
  const auto read = read_checkpoint(checkpoint_path(scratch.path(), 1), *loop.comm);
  EXPECT_EQ(read.state.model.size(), module_state(*loop.net).size());
  std::vector<std::string> names;
  for (const auto& entry : read.state.optimizer) {
    names.push_back(entry.name);
  }
  EXPECT_THAT(
      names, testing::IsSupersetOf(
                 {"group.0/lr", "group.1/betas.1", "step/0.weight", "exp_avg/1.bias",
                  "max_exp_avg_sq/3.weight", "generators"}));
}

TEST(LoopCheckpoints, AreNotFoundInANewDirectory) {
  const Scratch scratch;
  Loop loop;
  loop.train_until(1);
  EXPECT_FALSE(loop.resume(scratch / "none"));
  EXPECT_EQ(loop.at.step, 1);
}

TEST(LoopCheckpoints, FallBackIfTheNewestIsTorn) {
  const Scratch scratch;
  Loop loop;
  for (int64_t step = 1; step <= 3; ++step) {
    loop.train_until(step);
    loop.save(scratch.path());
  }
  const auto path = newest_checkpoint(scratch.path()) + "/model.safetensors";
  const auto bytes = read_file(path);
  replace_file(path, bytes.substr(0, bytes.size() - 9));
  Loop resumed;
  ASSERT_TRUE(resumed.resume(scratch.path()));
  EXPECT_EQ(resumed.at.step, 2);
}

// Each rejected checkpoint changes nothing.
TEST(LoopCheckpoints, OfAnotherLoopAreRejected) {
  const Scratch scratch;
  Loop loop;
  loop.train_until(3);
  loop.save(scratch.path());
  const auto refused = [&](Loop& other, bool with_scheduler = true) {
    other.train_until(1);
    const auto before = other.net->parameters()[0].clone();
    const auto rates = other.learning_rates();
    const auto error = error_of<ConfigError>(
        [&] { return other.resume(scratch.path(), with_scheduler); });
    EXPECT_TRUE(other.net->parameters()[0].equal(before));
    EXPECT_EQ(other.learning_rates(), rates);
    EXPECT_EQ(other.at.step, 1);
    EXPECT_THAT(error, HasSubstr("step-00000003'"));
    return error;
  };
  Loop wide(sgd(), 9);
  EXPECT_THAT(refused(wide), HasSubstr("of shape 8x4, the model expects 9x4"));
  Loop other_class(adam());
  EXPECT_THAT(
      refused(other_class), HasSubstr("loop_optimizer = \"SGD\", expected "
                                      "loop_optimizer = \"Adam\""));
  Loop one_group({"", [](const Tensors& parameters) {
                    return std::make_unique<optim::SGD>(
                        parameters, optim::SGDOptions(0.1));
                  }});
  EXPECT_THAT(refused(one_group), HasSubstr("'group.1/dampening', which"));
  Loop without;
  EXPECT_THAT(refused(without, false), HasSubstr("has a scheduler, expected none"));
}

class CountingSgd : public optim::SGD {
 public:
  using optim::SGD::SGD;
  int64_t count = 0;
};

TEST(LoopCheckpoints, RejectOptimizersTheyCannotSave) {
  const auto comm = make_single_communicator();
  const Loop loop;
  const auto refused = [&](optim::Optimizer& optimizer) {
    return error_of<ConfigError>(
        [&] { Checkpoint("checkpoints", *loop.net, optimizer, *comm); });
  };
  CountingSgd derived(loop.net->parameters(), optim::SGDOptions(0.1));
  EXPECT_THAT(refused(derived), HasSubstr("expected one of SGD, Adam, AdamW"));
  auto parameters = loop.net->parameters();
  parameters.push_back(at::ones({2}).requires_grad_());
  optim::SGD more(parameters, optim::SGDOptions(0.1));
  EXPECT_THAT(refused(more), HasSubstr("not in the module"));
}

TEST(LoopCheckpoints, OnAFileInPlaceOfTheDirectoryFailOnAllRanks) {
  const Scratch scratch;
  replace_file(scratch / "file", "not a directory");
  run_ranks(3, [&](Communicator& comm) {
    Loop loop;
    Checkpoint checkpoint(scratch / "file", *loop.net, *loop.optimizer, comm);
    const auto error = error_of<DataError>([&] { checkpoint.save({}); });
    TANDEM_CHECK(error.find("file'") != std::string::npos, error);
  });
  EXPECT_EQ(read_file(scratch / "file"), "not a directory");
}

TEST(LoopCheckpoints, OnAFullDiskLeaveTheOlderCheckpoint) {
  const Scratch scratch;
  Loop loop;
  loop.train_until(1);
  loop.save(scratch.path());
  loop.train_until(2);
  {
    const FileSizeLimit full(500);
    expect_error<DataError>([&] { loop.save(scratch.path()); }, {"safetensors"});
    expect_error<DataError>(
        [&] { save_weights(scratch / "net.pt", *loop.net); }, {"net.pt"});
  }
  EXPECT_THAT(list_directory(scratch.path()), testing::ElementsAre("step-00000001"));
  Loop resumed;
  ASSERT_TRUE(resumed.resume(scratch.path()));
  EXPECT_EQ(resumed.at.step, 1);
}

TEST(LoopCheckpoints, LoadWithAnotherNumberOfRanksUnderDdp) {
  const Scratch scratch;
  at::Tensor saved;
  run_ranks(3, [&](Communicator& comm) {
    Loop loop(adam());
    DistributedDataParallel ddp(*loop.net, comm);
    loop.train_until(4);
    Checkpoint checkpoint(scratch.path(), *loop.net, *loop.optimizer, comm);
    checkpoint.save(loop.at);
    if (comm.rank() == 0) {
      saved = loop.net->parameters()[0].detach().clone();
    }
  });
  run_ranks(2, [&](Communicator& comm) {
    Loop loop(adam());
    DistributedDataParallel ddp(*loop.net, comm);
    Checkpoint checkpoint(scratch.path(), *loop.net, *loop.optimizer, comm);
    TANDEM_CHECK(checkpoint.resume(loop.at), "no checkpoint");
    TANDEM_CHECK(loop.net->parameters()[0].equal(saved), "other weights");
    TANDEM_CHECK(loop.at.step == 4, "another step");
    loop.train_until(5);
  });
}

}  // namespace tandem::loop_checkpoint_test

#include "tandem/parallel/ddp/local_sgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tandem/base/error.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/parallel/replica.h"

namespace tandem::local_sgd_test {

using testing::HasSubstr;

constexpr int64_t kSteps = 7;

StepContext step_number(int64_t step) {
  StepContext context = step_of(0.05);
  context.step = step;
  return context;
}

Batch batch_of(const Communicator& comm, int64_t step) {
  return first_batch(4, comm.size(), comm.rank(), step);
}

OptimizerOptions momentum() {
  OptimizerOptions options;
  options.momentum = 0.9;
  return options;
}

// Returns the hash of the parameters and buffers after steps of the strategy
// `averaging`.
std::string trained_by_strategy(
    Communicator& comm, int64_t average_every,
    OuterOptimizer outer = OuterOptimizer::none) {
  StrategyOptions options;
  options.kind = StrategyKind::averaging;
  options.average_every = average_every;
  options.outer_optimizer = outer;
  Replica replica(make_small_model(batch_norm_layers()), comm, options, momentum());
  replica.strategy->start();
  for (int64_t step = 0; step < kSteps; ++step) {
    replica.strategy->train_step({batch_of(comm, step)}, step_number(step));
  }
  replica.strategy->before_evaluation();
  return ModelArenas(replica.arenas.state(), {}).parameters_sha256();
}

std::string trained_by_loop(
    Communicator& comm, int64_t average_every,
    OuterOptimizer outer = OuterOptimizer::none) {
  // Models with different parameters: LocalSgd copies those of rank 0.
  const auto model = make_small_model(batch_norm_layers(), comm.rank() == 0 ? 1 : 9);
  LocalSgdOptions options;
  options.average_every = average_every;
  options.outer_optimizer = outer;
  LocalSgd averaging(model->parameters(), model->buffers(), comm, options);
  ModelArenas& arenas = averaging.arenas();
  const auto optimizer =
      make_optimizer(momentum(), arenas.parameters(), arenas.gradients());
  StageOptions stage;
  stage.loss = {LossKind::nll, Reduction::mean};
  const auto executor = make_eager_executor(*model, arenas, stage);
  for (int64_t step = 0; step < kSteps; ++step) {
    StepContext context = step_number(step);
    const auto batch = batch_of(comm, step);
    context.loss_weight = 1.0 / static_cast<double>(batch.count());
    executor->zero_gradients();
    executor->forward(0, batch, context);
    NoSink no_sink;
    executor->backward(0, {}, context, no_sink);
    for (const auto& range : arenas.parameters().layout().ranges()) {
      optimizer->update(range, {0.05, 1, step + 1});
    }
    averaging.step();
  }
  averaging.average();
  averaging.average();  // has no effect
  return ModelArenas(arenas.state(), {}).parameters_sha256();
}

TEST(LocalSgd, HasTheBitsOfTheStrategyAveraging) {
  for (const char* backend : {"thread", "shm", "gloo"}) {
    for (const int size : {1, 2, 3, 4}) {
      for (const int64_t every : {1, 3, 7}) {
        SCOPED_TRACE(
            std::to_string(size) + " over " + backend + ", every " +
            std::to_string(every));
        const auto expected = on_each_rank(backend, size, [&](Communicator& comm) {
          return trained_by_strategy(comm, every);
        });
        EXPECT_THAT(
            on_each_rank(
                backend, size,
                [&](Communicator& comm) { return trained_by_loop(comm, every); }),
            testing::Each(expected[0]));
      }
    }
  }
}

TEST(LocalSgd, HasTheBitsOfTheOuterOptimizer) {
  const auto outer = OuterOptimizer::nesterov;
  const auto expected = on_each_rank("shm", 3, [&](Communicator& comm) {
    return trained_by_strategy(comm, 7, outer);
  });
  EXPECT_THAT(
      on_each_rank(
          "shm", 3,
          [&](Communicator& comm) { return trained_by_loop(comm, 7, outer); }),
      testing::Each(expected[0]));
}

TEST(LocalSgd, RejectsOptions) {
  const auto refusal = [](int64_t of_rank_0, int64_t of_others) {
    return error_of<Error>([&] {
      run_backend("thread", 3, [&](Communicator& comm) {
        const auto model = make_small_model(batch_norm_layers());
        LocalSgd averaging(
            model->parameters(), model->buffers(), comm,
            {comm.rank() == 0 ? of_rank_0 : of_others});
      });
    });
  };
  EXPECT_THAT(refusal(0, 0), HasSubstr("average_every is 0, expected at least 1"));
  EXPECT_THAT(refusal(2, 3), HasSubstr("LocalSgdOptions"));
}

}  // namespace tandem::local_sgd_test

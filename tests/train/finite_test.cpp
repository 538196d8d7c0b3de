// Runs whose loss or parameters are not finite after the last step.

#include "tandem/train/finite_check.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <limits>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tandem/train/evaluation.h"
#include "tandem/train/predictions.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"
#include "tests/train/printed.h"

namespace tandem::finite_test {

using testing::HasSubstr;

struct Way {
  StrategyKind kind;
  int ranks;
  int64_t stages = 0;
  ServerUpdates updates = ServerUpdates::synchronous;
};

// One step of net5x5 with a learning rate that makes parameters large, but finite.
RunConfig one_step(const Way& way, const std::string& out, double lr) {
  RunConfig config = thread_config(ModelKind::net5x5, way.ranks);
  config.strategy.kind = way.kind;
  config.strategy.stages = way.stages;
  config.strategy.server_updates = way.updates;
  config.training.batch_size = 128;
  config.training.epochs = 1;
  config.optimizer.lr = lr;
  config.output.out = out;
  return config;
}

std::string error_of_run(const RunConfig& config) {
  testing::internal::CaptureStdout();
  std::string text;
  try {
    (void)train_on_digits(static_cast<int>(config.ranks.nproc), config);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    text = error.what();
    EXPECT_EQ(exit_code(error), 1) << text;
  }
  testing::internal::GetCapturedStdout();
  return text;
}

constexpr Way kWays[] = {
    {StrategyKind::sequential, 1},
    {StrategyKind::data_parallel, 2},
    {StrategyKind::averaging, 2},
    {StrategyKind::parameter_server, 3},
    {StrategyKind::parameter_server, 3, 0, ServerUpdates::asynchronous},
    {StrategyKind::pipeline, 2, 2},
    {StrategyKind::pipeline, 4, 2},
    {StrategyKind::hogwild, 2}};

TEST(LastStep, ATestLossThatIsNotFiniteEndsTheRun) {
  for (const auto& way : kWays) {
    for (const bool saves : {false, true}) {
      const Scratch scratch;
      const auto config = one_step(way, saves ? scratch / "run" : "", 1e36);
      EXPECT_THAT(
          error_of_run(config),
          testing::AnyOf(
              HasSubstr("[train] the test loss is not finite after"),
              HasSubstr("[train] the loss is not finite at"),
              // The second rank of Hogwild trained on the parameters of the first.
              HasSubstr("has values that are not finite after step 1")))
          << name_of(way.kind);
      EXPECT_FALSE(file_exists(scratch / "run/summary.json"));
    }
  }
}

TEST(LastStep, AValidationLossThatIsNotFiniteEndsTheRun) {
  for (const auto& way : kWays) {
    const Scratch scratch;
    auto config = one_step(way, scratch / "run", 1e36);
    config.output.keep_best = true;
    auto data = hundred_digits();
    data.validation = data.test;
    testing::internal::CaptureStdout();
    EXPECT_THAT(
        error_of<Error>([&] { (void)train_on_threads(way.ranks, config, data); }),
        testing::AnyOf(
            HasSubstr("[train] the validation loss is not finite after"),
            HasSubstr("[train] the loss is not finite at"),
            HasSubstr("has values that are not finite after step 1")))
        << name_of(way.kind);
    testing::internal::GetCapturedStdout();
    EXPECT_FALSE(file_exists(scratch / "run/summary.json"));
    EXPECT_FALSE(file_exists(scratch / "run/checkpoints/best"));
  }
}

TEST(LastStep, AParameterThatIsNotFiniteEndsTheRun) {
  for (const auto& way : kWays) {
    for (const bool saves : {false, true}) {
      const Scratch scratch;
      auto config = one_step(way, saves ? scratch / "run" : "", 1e37);
      config.optimizer.weight_decay = 1e6;
      EXPECT_THAT(
          error_of_run(config), testing::AnyOf(
                                    HasSubstr("has values that are not finite"),
                                    HasSubstr("[train] the loss is not finite at")))
          << name_of(way.kind);
      EXPECT_FALSE(file_exists(scratch / "run/summary.json"));
    }
  }
}

TEST(FiniteCheck, BuffersMayStayInfinite) {
  const auto comm = make_single_communicator();
  const auto weight = at::zeros({3}).set_requires_grad(true);
  const auto mask = at::full({2}, -std::numeric_limits<float>::infinity());
  const ModelArenas arenas({{"weight", weight}}, {{"mask", mask}});
  const FiniteCheck check(arenas, *comm);
  check.check_model(1);
  arenas.state()[1].tensor.fill_(std::numeric_limits<float>::quiet_NaN());
  expect_error<ValuesNotFinite>(
      [&] { check.check_model(2); },
      {"[train] 'mask' has values that are not finite after step 2 on rank 0"});
}

// Trains a network with an infinite buffer that becomes `value`. Returns the error.
std::string error_with_mask(const std::string& out, float value) {
  const auto weight = at::full({784, 10}, 0.01).set_requires_grad(true);
  auto mask = at::full({2}, -std::numeric_limits<float>::infinity());
  auto config = thread_config(ModelKind::custom, 1);
  config.training.epochs = 1;
  config.output.out = out;
  const auto comm = make_single_communicator();
  std::string text;
  testing::internal::CaptureStdout();
  try {
    (void)train(
        config, hundred_digits(), *comm,
        make_function_model(
            [=](const at::Tensor& x) mutable {
              mask.fill_(value);
              return x.flatten(1).matmul(weight);
            },
            {{"weight", weight}}, {{"mask", mask}}));
  } catch (const ValuesNotFinite& error) {
    text = error.what();
  }
  testing::internal::GetCapturedStdout();
  return text;
}

TEST(FiniteCheck, CheckpointsContainInfiniteBuffersButNoNan) {
  const Scratch scratch;
  const auto out = scratch / "run";
  EXPECT_EQ(error_with_mask(out, -std::numeric_limits<float>::infinity()), "");
  EXPECT_FALSE(newest_whole_checkpoint(out + "/checkpoints").empty());
  EXPECT_THAT(
      error_with_mask(scratch / "nan", std::numeric_limits<float>::quiet_NaN()),
      HasSubstr("'mask' has values that are not finite"));
}

// The checkpoint of the step stays, because its parameters are finite.
TEST(LastStep, EvaluationsAndPredictionsOfItsCheckpointAreRefused) {
  const Scratch scratch;
  const auto config = one_step(kWays[0], scratch / "run", 1e36);
  (void)error_of_run(config);
  CheckpointEvaluation options;
  options.dataset = hundred_digits().test;
  expect_error<DataError>(
      [&] { (void)evaluate_checkpoint(config.output.out, options); },
      {"[eval] the test loss of", "is not finite"});
  expect_error<DataError>(
      [&] { write_predictions(scratch / "p.csv", config.output.out, options); },
      {"[predict] the output for sample 0 is not finite"});
  EXPECT_FALSE(file_exists(scratch / "p.csv"));
}

}  // namespace tandem::finite_test

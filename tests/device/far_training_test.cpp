// Training on a device with separate memory gives the results of the CPU except for the
// last bits, and a step reads nothing back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/formats/safetensors.h"
#include "tandem/graph/pt2.h"
#include "tandem/model/graph_model.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/device/far_device.h"
#include "tests/named.h"
#include "tests/graph/fixture_files.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"
#include "tests/train/noise.h"

namespace tandem::far_training_test {

using testing::Each;
using testing::HasSubstr;

RunResult train_on(const Placement& placement, RunOptions options) {
  options.placement = placement;
  const auto comm = make_single_communicator();
  return train_small_net(*comm, options);
}

struct Way {
  const char* name;
  void (*change)(RunOptions& options);
};

using tandem::operator<<;

class FarTraining : public testing::TestWithParam<Way> {};

TEST_P(FarTraining, EqualsTheCpu) {
  RunOptions options;
  GetParam().change(options);
  options.layers = without_dropout(options.layers);
  const auto expected = train_on({}, options);
  const auto far = train_on(far_placement(), options);
  EXPECT_LT(relative_difference(far.parameters.cpu(), expected.parameters), 1e-12);
  EXPECT_LT(relative_difference(far.sums.cpu(), expected.sums), 1e-12);
  EXPECT_NEAR(
      far.gradient_norm, expected.gradient_norm, 1e-12 * expected.gradient_norm);
}

TEST_P(FarTraining, RepeatsItsBits) {
  RunOptions options;
  GetParam().change(options);
  const auto first = train_on(far_placement(), options);
  EXPECT_EQ(train_on(far_placement(), options).sha256, first.sha256);
  options.seed = 6;
  EXPECT_NE(train_on(far_placement(), options).sha256, first.sha256);
}

// A replica on the device and the objects for its steps.
struct OnDevice {
  explicit OnDevice(RunOptions options = {})
      : replica(
            make_small_model(options.layers), *comm, options.strategy,
            options.optimizer, options.loss, options.scaled, far_placement()),
        loader(noise_images(60), {}, with_images()) {
    replica.strategy->start();
    loader.seek(0);
    context.lr = 0.05;
  }
  static LoaderOptions with_images() {
    LoaderOptions options;
    options.images = copy_to_device(noise_images(60), far_placement());
    return options;
  }
  StepSums step() {
    std::vector<Batch> batches(1);
    loader.seek(0);
    EXPECT_TRUE(loader.next(batches[0]));
    return replica.strategy->train_step(batches, context);
  }

  std::unique_ptr<Communicator> comm = make_single_communicator();
  Replica replica;
  Loader loader;
  StepContext context;
};

TEST_P(FarTraining, ReadsAtMostOneFlagPerStepBack) {
  RunOptions options;
  GetParam().change(options);
  OnDevice device(options);
  device.step();
  const auto before = copies_from_far();
  const auto sums = device.step();
  // The flag for overflowed gradients.
  const int64_t flags = options.scaled ? 1 : 0;
  EXPECT_EQ(copies_from_far(), before + flags);
  EXPECT_NE(sums.values().loss, 0);
  EXPECT_EQ(copies_from_far(), before + flags + 1);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, FarTraining,
    testing::Values(
        Way{"sgd", [](RunOptions&) {}},
        Way{"sgd_without_momentum",
            [](RunOptions& options) { options.optimizer.momentum = 0; }},
        Way{"adam",
            [](RunOptions& options) {
              options.optimizer.kind = OptimizerKind::adam;
              options.optimizer.momentum = 0;
            }},
        Way{"adamw_amsgrad",
            [](RunOptions& options) {
              options.optimizer.kind = OptimizerKind::adamw;
              options.optimizer.amsgrad = true;
              options.optimizer.momentum = 0;
            }},
        Way{"adadelta",
            [](RunOptions& options) {
              options.optimizer.kind = OptimizerKind::adadelta;
              options.optimizer.momentum = 0;
            }},
        Way{"scaled", [](RunOptions& options) { options.scaled = true; }},
        Way{"clipping", [](RunOptions& options) { options.strategy.clip_norm = 0.1; }},
        Way{"micro_batches", [](RunOptions& options) { options.micro_batches = 3; }},
        Way{"batch_norm",
            [](RunOptions& options) { options.layers = convnet_bn_layers(); }}),
    testing::PrintToStringParamName());

// Two epochs, saved after each.
RunConfig short_run(const std::string& out) {
  RunConfig config;
  config.model.kind = ModelKind::custom;
  config.training.batch_size = 16;
  config.training.epochs = 2;
  config.exec.executor = ExecutorKind::eager;
  config.output.out = out;
  return config;
}

using Layers = std::vector<Layer>;

std::string hash_after(
    const RunConfig& config, const Placement& placement,
    const Layers& layers = small_net_layers()) {
  const auto comm = make_single_communicator();
  CustomParts own(make_small_model(layers));
  own.placement = placement;
  return train(config, {noise_images(96), noise_images(40)}, *comm, std::move(own))
      .parameters_sha256;
}

std::vector<NamedTensor> saved(const std::string& out, const std::string& file) {
  return read_safetensors(out + "/checkpoints/step-00000012/" + file).tensors;
}

void expect_near(
    const std::vector<NamedTensor>& found, const std::vector<NamedTensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].tensor.allclose(expected[i].tensor, 1e-9, 1e-12))
        << found[i].name;
  }
}

TEST(FarRun, EqualsTheCpuInTrainingEvaluationAndCheckpoints) {
  const Scratch scratch;
  const auto layers = without_dropout(small_net_layers());
  hash_after(short_run(scratch / "far"), far_placement(), layers);
  hash_after(short_run(scratch / "near"), {}, layers);
  for (const char* file : {"model.safetensors", "training.safetensors"}) {
    expect_near(saved(scratch / "far", file), saved(scratch / "near", file));
  }
}

TEST(FarRun, ImagesThatDoNotFitChangeNoBit) {
  const Scratch scratch;
  const auto expected = hash_after(short_run(scratch / "there"), far_placement());
  far_free_bytes = 96 * 65;
  testing::internal::CaptureStdout();
  const auto found = hash_after(short_run(scratch / "sent"), far_placement());
  const auto said = testing::internal::GetCapturedStdout();
  far_free_bytes = int64_t{1} << 30;
  EXPECT_EQ(found, expected);
  EXPECT_THAT(
      said, HasSubstr("data: the samples stay in main memory, because they need more "
                      "than half of the free memory of xpu:0"));
}

TEST(FarRun, ResumesToTheBitsOfAnUninterruptedRun) {
  const Scratch scratch;
  const auto expected = hash_after(short_run(scratch / "whole"), far_placement());
  auto first = short_run(scratch / "parts");
  first.training.epochs = 1;
  hash_after(first, far_placement());
  auto second = short_run(scratch / "parts");
  second.output.resume = "auto";
  EXPECT_EQ(hash_after(second, far_placement()), expected);
}

TEST(FarRun, ResumesOnAnotherDevice) {
  const auto layers = without_dropout(small_net_layers());
  const Scratch scratch;
  hash_after(short_run(scratch / "whole"), {}, layers);
  for (const bool begins_far : {false, true}) {
    const auto out = scratch / (begins_far ? "from-far" : "to-far");
    auto first = short_run(out);
    first.training.epochs = 1;
    hash_after(first, begins_far ? far_placement() : Placement(), layers);
    auto second = short_run(out);
    second.output.resume = "auto";
    hash_after(second, begins_far ? Placement() : far_placement(), layers);
    const char* file = "model.safetensors";
    expect_near(saved(out, file), saved(scratch / "whole", file));
  }
}

// A step counts; if gradients overflow with the scale, it is skipped.
TEST(FarRun, MixedPrecisionSkipsTheSameStepsAsTheCpu) {
  for (const double scale : {ExecOptions::kDynamicScale, 1e30}) {
    const Scratch scratch;
    const auto skipped_steps = [&](const char* name, const Placement& placement) {
      auto config = short_run(scratch / name);
      config.exec.precision = Precision::fp16;
      config.exec.loss_scale = scale;
      hash_after(config, placement);
      for (const auto& entry : saved(config.output.out, "training.safetensors")) {
        if (entry.name.find("skipped_steps") != std::string::npos) {
          return entry.tensor.item<int64_t>();
        }
      }
      return int64_t{-1};
    };
    const int64_t expected = scale > 1 ? 12 : 0;
    EXPECT_EQ(skipped_steps("near", {}), expected);
    EXPECT_EQ(skipped_steps("far", far_placement()), expected);
  }
}

// The network has constants, and operators that create tensors.
TEST(FarRun, TrainsAnImportedNetwork) {
  const Scratch scratch;
  const auto path = unpack_fixture(scratch, "transformer-2.15.0.pt2");
  const auto loss_on = [&](const Placement& placement) {
    const Graph graph = read_pt2(path);
    const auto comm = make_single_communicator();
    CustomParts own(make_graph_model(graph));
    own.placement = placement;
    return train(
               short_run(""), {noise_for(graph, 96), noise_for(graph, 40)}, *comm,
               std::move(own))
        .test.loss;
  };
  const double expected = loss_on({});
  EXPECT_NEAR(loss_on(far_placement(1)), expected, 1e-6 * expected);
}

TEST(FarRun, Tf32IsForDevices) {
  const Scratch scratch;
  auto config = short_run(scratch / "tf32");
  config.exec.precision = Precision::tf32;
  expect_error<ConfigError>(
      [&] { hash_after(config, {}); }, {"precision tf32 needs a GPU"});
  EXPECT_THAT(hash_after(config, far_placement()), testing::SizeIs(64));
}

TEST(FarRun, UnsupportedSettingsAreReported) {
  const Scratch scratch;
  auto hogwild = short_run(scratch / "hogwild");
  hogwild.strategy.kind = StrategyKind::hogwild;
  expect_error<ConfigError>(
      [&] { hash_after(hogwild, far_placement()); },
      {"ranks of hogwild share parameters"});
  auto compiled = short_run(scratch / "compiled");
  compiled.exec.executor = ExecutorKind::compiled;
  expect_error<ConfigError>(
      [&] { hash_after(compiled, far_placement()); }, {"the model is on xpu:0"});
  EXPECT_THAT(
      on_each_rank(
          "thread", 2,
          [&](Communicator& comm) {
            CustomParts own(make_small_model(small_net_layers()));
            own.placement = far_placement();
            auto config = short_run("");
            config.ranks.nproc = 2;
            config.ranks.kind = RankKind::thread;
            return error_of<ConfigError>([&] {
              train(config, {noise_images(96), noise_images(40)}, comm, std::move(own));
            });
          }),
      Each(HasSubstr("use make_device_communicator()")));
}

TEST(FarDeviceDeathTest, DeviceMemoryIsNotAccessibleFromTheHost) {
  const auto tensor = at::zeros({4}, at::TensorOptions(at::kFloat).device(kFar));
  EXPECT_EQ(tensor.cpu().sum().item<float>(), 0);
  EXPECT_DEATH(std::fprintf(stderr, "%f", tensor.data_ptr<float>()[0]), "");
}

}  // namespace tandem::far_training_test

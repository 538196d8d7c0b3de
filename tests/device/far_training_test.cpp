// Training on a device whose memory is not main memory: the bits of main memory, and
// nothing of a step is read back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/formats/safetensors.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/data/scratch.h"
#include "tests/device/far_device.h"
#include "tests/parallel/replica.h"

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

void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

class FarTraining : public testing::TestWithParam<Way> {};

TEST_P(FarTraining, HasTheBitsOfMainMemory) {
  RunOptions options;
  GetParam().change(options);
  const auto expected = train_on({}, options);
  const auto far = train_on(far_placement(), options);
  EXPECT_EQ(far.sha256, expected.sha256);
  EXPECT_TRUE(far.sums.cpu().equal(expected.sums));
}

// A replica on the device and what its steps need.
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

TEST_P(FarTraining, ReadsNothingOfAStepBack) {
  RunOptions options;
  GetParam().change(options);
  OnDevice device(options);
  device.step();
  const auto before = copies_from_far();
  const auto there = copies_to_far();
  const auto waited = waited_copies_to_far();
  const auto sums = device.step();
  EXPECT_EQ(copies_from_far(), before);
  // All that changes from step to step goes there at once.
  EXPECT_EQ(copies_to_far(), there + 1);
  EXPECT_EQ(waited_copies_to_far(), waited);
  EXPECT_NE(sums.values().loss, 0);
  EXPECT_EQ(copies_from_far(), before + 1);
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
    [](const auto& row) { return std::string(row.param.name); });

TEST(FarDevice, WithoutItsKernelsNoOptimizerTakesIt) {
  Placement placement = far_placement();
  placement.kernels = nullptr;
  EXPECT_THAT(
      error_of<ConfigError>([&] { train_on(placement, {}); }),
      HasSubstr("parameters are on xpu:0"));
}

// Two epochs of a small net with dropout, saved after each.
RunConfig short_run(const std::string& out) {
  RunConfig config;
  config.model.kind = ModelKind::custom;
  config.training.batch_size = 16;
  config.training.epochs = 2;
  // Which has the bits of main memory.
  config.exec.executor = ExecutorKind::eager;
  config.output.out = out;
  return config;
}

std::string hash_after(const RunConfig& config, const Placement& placement) {
  const auto comm = make_single_communicator();
  OwnParts own(make_small_model(small_net_layers()));
  own.placement = placement;
  return train(config, {noise_images(96), noise_images(40)}, *comm, std::move(own))
      .parameters_sha256;
}

TEST(FarRun, TrainsEvaluatesAndSavesWithTheBitsOfMainMemory) {
  const Scratch scratch;
  EXPECT_EQ(
      hash_after(short_run(scratch / "far"), far_placement()),
      hash_after(short_run(scratch / "near"), {}));
  const std::string saved = "/checkpoints/step-00000012";
  const auto near = read_safetensors(scratch / "near" + saved + "/model.safetensors");
  const auto far = read_safetensors(scratch / "far" + saved + "/model.safetensors");
  ASSERT_EQ(far.tensors.size(), near.tensors.size());
  for (size_t i = 0; i < far.tensors.size(); ++i) {
    EXPECT_TRUE(far.tensors[i].tensor.equal(near.tensors[i].tensor));
  }
}

TEST(FarRun, ImagesForWhichThereIsNoRoomChangeNoBit) {
  if (!kCountsCopies) {
    GTEST_SKIP() << "a GPU's memory is what it is";
  }
  const Scratch scratch;
  const auto before = waited_copies_to_far();
  const auto expected = hash_after(short_run(scratch / "there"), far_placement());
  const auto waited = waited_copies_to_far();
  far_free_bytes = 96 * 65;
  testing::internal::CaptureStdout();
  const auto found = hash_after(short_run(scratch / "sent"), far_placement());
  const auto said = testing::internal::GetCapturedStdout();
  far_free_bytes = int64_t{1} << 30;
  EXPECT_EQ(found, expected);
  EXPECT_THAT(said, HasSubstr("data: the images stay in main memory"));
  // The host waits for no copy of a step.
  EXPECT_LE(waited_copies_to_far() - waited, waited - before);
}

TEST(FarRun, GoesOnWhereTheOtherDeviceStopped) {
  const Scratch scratch;
  const auto expected = hash_after(short_run(scratch / "whole"), {});
  for (const bool begins_far : {false, true}) {
    const auto out = scratch / (begins_far ? "from-far" : "to-far");
    auto first = short_run(out);
    first.training.epochs = 1;
    hash_after(first, begins_far ? far_placement() : Placement());
    auto second = short_run(out);
    second.output.resume = "auto";
    EXPECT_EQ(hash_after(second, begins_far ? Placement() : far_placement()), expected);
  }
}

// What a scaler decides stays on the device: that a step counts, or, of a scale with
// which gradients overflow, that it is left out.
TEST(FarRun, MixedPrecisionHasTheBitsOfMainMemory) {
  for (const double scale : {ExecOptions::kDynamicScale, 1e30}) {
    const Scratch scratch;
    const auto state = [&](const char* name, const Placement& placement) {
      auto config = short_run(scratch / name);
      config.exec.precision = Precision::fp16;
      config.exec.loss_scale = scale;
      hash_after(config, placement);
      return read_safetensors(
                 config.output.out + "/checkpoints/step-00000012/training.safetensors")
          .tensors;
    };
    const auto near = state("near", {});
    const auto far = state("far", far_placement());
    ASSERT_EQ(far.size(), near.size());
    for (size_t i = 0; i < far.size(); ++i) {
      EXPECT_TRUE(far[i].tensor.equal(near[i].tensor)) << near[i].name;
      if (near[i].name.find("skipped_steps") != std::string::npos) {
        EXPECT_EQ(near[i].tensor.item<int64_t>(), scale > 1 ? 12 : 0);
      }
    }
  }
}

TEST(FarRun, TakesTheKernelsOfTheDevice) {
  const auto train_on = [](const Placement& placement) {
    auto config = short_run("");
    config.exec.executor = ExecutorKind::automatic;
    const auto comm = make_single_communicator();
    OwnParts own(make_small_model(small_net_layers()));
    own.placement = placement;
    return train(config, {noise_images(96), noise_images(40)}, *comm, std::move(own));
  };
  const auto far = train_on(far_placement());
  const auto near = train_on({});
  EXPECT_EQ(far.executor, ExecutorKind::cuda);
  EXPECT_EQ(near.executor, ExecutorKind::eager);
  EXPECT_NEAR(far.test.loss, near.test.loss, 1e-9 * near.test.loss);
}

TEST(FarRun, Tf32IsForDevices) {
  const Scratch scratch;
  auto config = short_run(scratch / "tf32");
  config.exec.precision = Precision::tf32;
  EXPECT_THAT(
      error_of<ConfigError>([&] { hash_after(config, {}); }),
      HasSubstr("precision tf32 is a GPU's"));
  EXPECT_THAT(hash_after(config, far_placement()), testing::SizeIs(64));
}

TEST(FarRun, WhatItCannotDoIsSaid) {
  const Scratch scratch;
  auto hogwild = short_run(scratch / "hogwild");
  hogwild.strategy.kind = StrategyKind::hogwild;
  EXPECT_THAT(
      error_of<ConfigError>([&] { hash_after(hogwild, far_placement()); }),
      HasSubstr("ranks of hogwild share parameters"));
  auto compiled = short_run(scratch / "compiled");
  compiled.exec.executor = ExecutorKind::compiled;
  EXPECT_THAT(
      error_of<ConfigError>([&] { hash_after(compiled, far_placement()); }),
      HasSubstr("the model is on xpu:0"));
  EXPECT_THAT(
      on_each_rank(
          "thread", 2,
          [&](Communicator& comm) {
            OwnParts own(make_small_model(small_net_layers()));
            own.placement = far_placement();
            auto config = short_run("");
            config.ranks.nproc = 2;
            config.ranks.kind = RankKind::thread;
            return error_of<ConfigError>([&] {
              train(config, {noise_images(96), noise_images(40)}, comm, std::move(own));
            });
          }),
      Each(HasSubstr("give the run make_device_communicator()")));
}

TEST(FarDeviceDeathTest, ItsMemoryIsNotMainMemory) {
  const auto tensor = at::zeros({4}, at::TensorOptions(at::kFloat).device(kFar));
  EXPECT_EQ(tensor.cpu().sum().item<float>(), 0);
  EXPECT_DEATH(std::fprintf(stderr, "%f", tensor.data_ptr<float>()[0]), "");
}

}  // namespace tandem::far_training_test

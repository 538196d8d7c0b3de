// Errors of runs that need more than a device's memory: they name the settings to
// change.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/comm/backends/device.h"
#include "tandem/train/device_limits.h"
#include "tandem/train/trainer.h"
#include "tests/comm/group.h"
#include "tests/core/expect.h"
#include "tests/device/far_device.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"

namespace tandem::far_memory_test {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kEnough = int64_t{1} << 30;

// While the object exists, each device has this much more memory than device 0 uses
// now.
class Capacity {
 public:
  explicit Capacity(int64_t more) {
    far_capacity_bytes = far_bytes_in_use() + more;
    far_free_bytes = kFree;
  }
  ~Capacity() {
    far_capacity_bytes = kEnough;
    far_free_bytes = kEnough;
  }
  Capacity(const Capacity&) = delete;
  Capacity& operator=(const Capacity&) = delete;

  static constexpr int64_t kFree = 3 << 19;
};

RunConfig run_of(int64_t batch_size) {
  RunConfig config;
  config.model.kind = ModelKind::custom;
  config.training.batch_size = batch_size;
  config.training.epochs = 1;
  return config;
}

Summary train_far(const RunConfig& config, Communicator& comm, int device = 0) {
  CustomParts own(make_small_model(small_net_layers()));
  own.placement = far_placement(device);
  return train(config, {noise_images(96), noise_images(40)}, comm, std::move(own));
}

Summary train_far(const RunConfig& config) {
  return train_far(config, *make_single_communicator());
}

// Returns the peak memory of such a run on the device, in addition to the memory that
// it uses now.
int64_t bytes_of(const RunConfig& config) {
  forget_far_peak();
  const int64_t before = far_bytes_in_use();
  train_far(config);
  return far_peak_bytes() - before;
}

std::string error_with(int64_t bytes, const RunConfig& config) {
  const Capacity capacity(bytes);
  return error_of<Error>([&] { train_far(config); });
}

TEST(FarMemory, TheErrorForALargeBatchNamesBytesAndSettings) {
  auto config = run_of(32);
  config.output.eval_batch_size = 1;
  const std::string text = error_with(bytes_of(run_of(1)) + 1000, config);
  EXPECT_THAT(
      text, AllOf(
                HasSubstr("[device] xpu:0 does not have enough memory: "),
                ContainsRegex(
                    ": [0-9]+\\.[0-9][0-9] MiB was requested and 1.50 MiB is free; "),
                HasSubstr("lower --batch-size from 32 to 16")));
  EXPECT_THAT(text, Not(HasSubstr("\n")));
}

TEST(FarMemory, TheErrorForALargeTestBatchNamesItsFlag) {
  auto config = run_of(1);
  config.output.eval_batch_size = 1;
  const int64_t enough = bytes_of(config);
  config.output.eval_batch_size = 40;
  EXPECT_THAT(
      error_with(enough, config), HasSubstr("lower --eval-batch-size from 40 to 20"));
}

TEST(FarMemory, TheErrorForALargeModelDoesNotNameBatches) {
  const std::string text = error_with(1000, run_of(16));
  EXPECT_THAT(text, HasSubstr("choose a smaller --model, or --device cpu"));
  EXPECT_THAT(text, Not(HasSubstr("--batch-size")));
  EXPECT_THAT(
      error_with(bytes_of(run_of(1)) / 2, run_of(1)), Not(HasSubstr("from 1 to 0")));
}

TEST(FarMemory, TheRankWithoutMemoryReportsIt) {
  const int64_t little = bytes_of(run_of(1)) / 2;
  const auto errors = [&] {
    const Capacity capacity(little);
    return on_each_rank("thread", 2, [](Communicator& comm) {
      const auto group = make_device_communicator(comm.split(0));
      auto config = run_of(32);
      config.ranks.nproc = 2;
      config.ranks.kind = RankKind::thread;
      return error_of<Error>([&] { train_far(config, *group, comm.rank()); });
    });
  }();
  EXPECT_THAT(errors[0], HasSubstr("xpu:0 does not have enough memory"));
  EXPECT_THAT(errors[1], HasSubstr("xpu:1 does not have enough memory"));
}

std::string line_for(const std::string& text) {
  return error_of<Error>([&] {
    within_device_memory(far_placement(), "do this", [&] { TORCH_CHECK(false, text); });
  });
}

TEST(FarMemory, MessagesOfEachLibTorchAreRecognized) {
  const Capacity capacity(kEnough);
  const std::string begin = "[device] xpu:0 does not have enough memory: ";
  // 1.13, whose error type the devices throw, and 2.11.
  for (const char* after : {" (GPU 0; 7.79 GiB total)", ". GPU 0 has a total", ""}) {
    const auto line = error_of<Error>([&] {
      within_device_memory(far_placement(), "do this", [&] {
        TORCH_CHECK_WITH(
            OutOfMemoryError, false,
            std::string("CUDA out of memory. Tried to allocate 2.00 GiB") + after);
      });
    });
    EXPECT_EQ(line, begin + "2.00 GiB was requested and 1.50 MiB is free; do this");
  }
  for (const char* text :
       {"CUDA error: out of memory\nCUDA kernel errors might be reported later",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"}) {
    EXPECT_EQ(line_for(text), begin + "1.50 MiB is free; do this");
  }
  EXPECT_THAT(line_for("shapes differ"), HasSubstr("another error"));
}

TEST(FarMemory, TrainsWithTheMemoryThatARunNeeds) {
  const auto config = run_of(16);
  const int64_t enough = bytes_of(config);
  const Capacity capacity(enough);
  EXPECT_EQ(train_far(config).steps, 6);
}

}  // namespace tandem::far_memory_test

// Batches that are made on a device: those of main memory, and nothing of them is
// copied.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tandem/data/loader.h"
#include "tandem/exec/device/cuda_kernels.h"
#include "tests/device/far_device.h"
#include "tests/parallel/replica.h"

namespace tandem::far_data_test {

struct Case {
  const char* name;
  void (*change)(SamplerOptions& sampler, LoaderOptions& options);
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}

// For a set that stays in main memory, however small it is.
std::shared_ptr<const DeviceImages> images_that_stay(
    std::shared_ptr<const DeviceKernels> kernels = far_kernels()) {
  return std::make_shared<DeviceImages>(DeviceImages{kFar, std::move(kernels), {}, {}});
}

class FarData : public testing::TestWithParam<Case> {
 protected:
  // `images`: null in main memory.
  static Loader loader(std::shared_ptr<const DeviceImages> images) {
    const auto data = noise_images(60);
    SamplerOptions sampler;
    sampler.seed = 3;
    LoaderOptions options;
    options.batch_size = 8;
    GetParam().change(sampler, options);
    options.images = std::move(images);
    return Loader(data, sampler, options);
  }
  static void expect_batches_of_main_memory(Loader far, int64_t copies_each);
};

void FarData::expect_batches_of_main_memory(Loader far, int64_t copies_each) {
  auto near = loader(nullptr);
  for (const int64_t epoch : {0, 2}) {
    for (const int64_t first : {0, 16}) {
      near.seek(epoch, first);
      far.seek(epoch, first);
      int64_t batches = 0;
      for (Batch batch; near.next(batch); ++batches) {
        const auto there = copies_to_far();
        const auto waited = waited_copies_to_far();
        const auto back = copies_from_far();
        Batch other;
        ASSERT_TRUE(far.next(other));
        if (kCountsCopies) {
          EXPECT_EQ(copies_to_far(), there + copies_each);
        }
        EXPECT_EQ(waited_copies_to_far(), waited);
        EXPECT_EQ(copies_from_far(), back);
        EXPECT_TRUE(other.inputs.is_xpu());
        EXPECT_TRUE(batch.inputs.equal(other.inputs.cpu()));
        EXPECT_TRUE(batch.targets.equal(other.targets.cpu()));
        EXPECT_TRUE(batch.samples.equal(other.samples));
        EXPECT_EQ(batch.first_position, other.first_position);
        EXPECT_EQ(batch.position_stride, other.position_stride);
        EXPECT_EQ(batch.global_count, other.global_count);
      }
      EXPECT_GT(batches, 0);
    }
  }
}

TEST_P(FarData, HasTheBatchesOfMainMemory) {
  auto far = loader(copy_to_device(noise_images(60), far_placement()));
  EXPECT_TRUE(far.on_device());
  expect_batches_of_main_memory(std::move(far), 0);
}

TEST_P(FarData, HasThemWhereTheImagesStayInMainMemory) {
  auto far = loader(images_that_stay());
  EXPECT_FALSE(far.on_device());
  EXPECT_TRUE(far.sends_bytes());
  expect_batches_of_main_memory(std::move(far), 1);
}

// Another batch is made while the device may still read the last one's bytes.
TEST(FarDataThatIsSent, DoesNotLieWhereTheLastOneDid) {
  if (!kCountsCopies) {
    GTEST_SKIP() << "a GPU does not tell";
  }
  const auto run = [](std::shared_ptr<const DeviceKernels> kernels) {
    LoaderOptions options;
    options.images = images_that_stay(std::move(kernels));
    Loader loader(noise_images(200), {}, options);
    loader.seek(0);
    for (Batch batch; loader.next(batch);) {
    }
  };
  EXPECT_NO_THROW(run(far_kernels()));
  const auto words = far_kernels()->host_words(64 * 65 / 8);
  const auto one_memory = make_cuda_kernels(
      {[] { return cuda::Stream(); }, [] { return int64_t{0}; },
       [words](int64_t) { return words; }, [] { return far_kernels()->copy_stream(); },
       nullptr});
  EXPECT_THAT(
      [&] { run(one_memory); },
      testing::ThrowsMessage<std::exception>(testing::HasSubstr("still to read")));
}

INSTANTIATE_TEST_SUITE_P(
    All, FarData,
    testing::Values(
        Case{"whole", [](SamplerOptions&, LoaderOptions&) {}},
        Case{
            "padded", [](SamplerOptions&, LoaderOptions& options) { options.pad = 2; }},
        Case{
            "micro_batches",
            [](SamplerOptions&, LoaderOptions& options) { options.micro_batches = 3; }},
        Case{
            "a_shard_of_three",
            [](SamplerOptions& sampler, LoaderOptions&) {
              sampler.num_shards = 3;
              sampler.shard = 1;
              sampler.tail = Tail::keep;
            }},
        Case{
            "a_divided_batch",
            [](SamplerOptions& sampler, LoaderOptions& options) {
              sampler.num_shards = 3;
              sampler.shard = 2;
              sampler.tail = Tail::keep;
              sampler.batch = 16;
              options.micro_batches = 2;
            }}),
    [](const auto& row) { return std::string(row.param.name); });

// A captured step reads them there.
TEST(FarDataOfAStep, LiesInTheSamePlaceInEachStep) {
  const auto data = noise_images(60);
  LoaderOptions options;
  options.batch_size = 8;
  options.micro_batches = 2;
  options.num_buffers = 3;
  options.images = copy_to_device(data, far_placement());
  Loader loader(data, {}, options);
  std::vector<const void*> first;
  for (const int64_t epoch : {0, 1}) {
    loader.seek(epoch);
    std::vector<Batch> step(2);
    // Of 16 samples each, but for the last.
    while (loader.next(step[0]) && loader.next(step[1])) {
      std::vector<const void*> places;
      for (const auto& batch : step) {
        places.push_back(batch.inputs.data_ptr());
        places.push_back(batch.targets.data_ptr());
      }
      first = first.empty() ? places : first;
      EXPECT_EQ(places, first);
    }
  }
  EXPECT_NE(first[0], first[2]);
}

// A scattered data set holds some of its images only.
TEST(FarDataOfAShare, CountsFromTheFirstHeld) {
  auto share = noise_images(60);
  const int64_t first = 20;
  const int64_t held = 20;
  const auto* pixels = share.pixels.data();
  const auto* labels = share.labels.data();
  share.pixels =
      std::vector<uint8_t>(pixels + first * 64, pixels + (first + held) * 64);
  share.labels = std::vector<uint8_t>(labels + first, labels + first + held);
  share.num_shares = 3;
  share.first_held = first;
  SamplerOptions sampler;
  sampler.num_shards = sampler.blocks = 3;
  sampler.shard = 1;
  LoaderOptions options;
  options.batch_size = 20;
  Loader near(share, sampler, options);
  options.images = copy_to_device(share, far_placement());
  Loader far(share, sampler, options);
  near.seek(1);
  far.seek(1);
  Batch expected;
  Batch found;
  ASSERT_TRUE(near.next(expected));
  ASSERT_TRUE(far.next(found));
  EXPECT_TRUE(expected.inputs.equal(found.inputs.cpu()));
  EXPECT_TRUE(expected.targets.equal(found.targets.cpu()));
}

TEST(FarDataWithoutRoom, StaysInMainMemory) {
  if (!kCountsCopies) {
    GTEST_SKIP() << "a GPU's memory is what it is";
  }
  const auto data = noise_images(60);
  const int64_t bytes = 60 * 65;
  far_free_bytes = 2 * bytes;
  EXPECT_TRUE(copy_to_device(data, far_placement())->are_there());
  far_free_bytes = 2 * bytes - 1;
  EXPECT_FALSE(copy_to_device(data, far_placement())->are_there());
  far_free_bytes = int64_t{1} << 30;
  EXPECT_EQ(copy_to_device(data, {}), nullptr);
}

}  // namespace tandem::far_data_test

// Batches made on a device equal batches in main memory, and nothing is copied back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tandem/data/loader.h"
#include "tests/device/far_device.h"
#include "tests/named.h"
#include "tests/parallel/replica.h"

namespace tandem::far_data_test {

struct Case {
  const char* name;
  void (*change)(SamplerOptions& sampler, LoaderOptions& options);
};

using tandem::operator<<;

class FarData : public testing::TestWithParam<Case> {
 protected:
  // `images`: null for main memory.
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
};

TEST_P(FarData, EqualsBatchesInMainMemory) {
  auto near = loader(nullptr);
  auto far = loader(copy_to_device(noise_images(60), far_placement()));
  for (const int64_t epoch : {0, 2}) {
    for (const int64_t first : {0, 16}) {
      near.seek(epoch, first);
      far.seek(epoch, first);
      int64_t batches = 0;
      for (Batch batch; near.next(batch); ++batches) {
        const auto back = copies_from_far();
        Batch other;
        ASSERT_TRUE(far.next(other));
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
    testing::PrintToStringParamName());

// A scattered data set holds only some of its images.
TEST(FarDataOfAShare, CountsFromTheFirstHeldSample) {
  auto share = noise_images(60);
  const int64_t first = 20;
  const int64_t held = 20;
  const auto* pixels = share.inputs.bytes.data();
  const auto* labels = share.targets.bytes.data();
  share.inputs.bytes =
      std::vector<uint8_t>(pixels + first * 64, pixels + (first + held) * 64);
  share.targets.bytes = std::vector<uint8_t>(labels + first, labels + first + held);
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
  const auto data = noise_images(60);
  const int64_t bytes = 60 * 65;
  far_free_bytes = 2 * bytes;
  EXPECT_NE(copy_to_device(data, far_placement()), nullptr);
  far_free_bytes = 2 * bytes - 1;
  EXPECT_EQ(copy_to_device(data, far_placement()), nullptr);
  far_free_bytes = int64_t{1} << 30;
  EXPECT_EQ(copy_to_device(data, {}), nullptr);
}

TEST(FarDataOfAnotherKind, StaysInMainMemoryForAReason) {
  auto data = noise_images(60);
  LoaderOptions options;
  use_device(options, data, {});
  EXPECT_EQ(options.why_not_on_device, "");
  use_device(options, data, far_placement());
  EXPECT_EQ(options.why_not_on_device, "");
  EXPECT_NE(options.images, nullptr);
  LoaderOptions changed;
  changed.augmentation = parse_augmentation("flip");
  use_device(changed, data, far_placement());
  EXPECT_EQ(changed.why_not_on_device, "--augment changes them");
  data.targets.shape = {1};
  use_device(options, data, far_placement());
  EXPECT_THAT(options.why_not_on_device, testing::HasSubstr("only images"));
}

}  // namespace tandem::far_data_test

#include "tandem/data/loader.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"
#include "tests/core/expect.h"

namespace tandem::loader_test {

using testing::ElementsAre;
using testing::HasSubstr;

// 3 channels of 2 x 4; the label is the sample's number.
constexpr int64_t kImageBytes = 3 * 2 * 4;

uint8_t pixel(int64_t sample, int64_t within) {
  return static_cast<uint8_t>((sample * kImageBytes + within) * 37);
}

Dataset colours(int64_t size) {
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  for (int64_t sample = 0; sample < size; ++sample) {
    for (int64_t within = 0; within < kImageBytes; ++within) {
      pixels.push_back(pixel(sample, within));
    }
    labels.push_back(static_cast<uint8_t>(sample));
  }
  Dataset dataset;
  dataset.size = size;
  dataset.inputs.shape = {3, 2, 4};
  dataset.num_classes = size;
  dataset.inputs.bytes = pixels;
  dataset.targets.bytes = labels;
  return dataset;
}

LoaderOptions raw(int64_t batch_size) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.mean = {0};
  options.std = {1};
  return options;
}

SamplerOptions in_order() {
  SamplerOptions options;
  options.shuffle = false;
  return options;
}

std::vector<int64_t> targets_of(const Batch& batch) {
  const int64_t* first = batch.targets.data_ptr<int64_t>();
  return {first, first + batch.targets.numel()};
}

std::vector<int64_t> epoch_targets(Loader& loader, int64_t epoch, int64_t from = 0) {
  std::vector<int64_t> all;
  Batch batch;
  for (loader.seek(epoch, from); loader.next(batch);) {
    const auto targets = targets_of(batch);
    all.insert(all.end(), targets.begin(), targets.end());
  }
  return all;
}

// Returns whether every image of the batch belongs to its label, as plain p / 255.
bool shows_its_labels(const Batch& batch) {
  const auto inputs = batch.inputs.contiguous().view({batch.count(), kImageBytes});
  for (int64_t i = 0; i < batch.count(); ++i) {
    for (int64_t within = 0; within < kImageBytes; ++within) {
      const auto expected =
          static_cast<float>(pixel(targets_of(batch)[static_cast<size_t>(i)], within)) /
          255.0f;
      if (inputs[i][within].item<float>() != expected) {
        return false;
      }
    }
  }
  return true;
}

// SHA-256 of the 256 floats that torchvision makes of the pixels 0 to 255, with
// Debian's PyTorch 1.13:
//   p = torch.arange(256, dtype=torch.uint8).to(torch.float32).div(255)
//   p.sub_(torch.tensor([mean])).div_(torch.tensor([std])).numpy().tobytes()
TEST(Loader, NormalisesToTheBitsOfTorchvision) {
  struct Case {
    double mean;
    double std;
    std::string sha256;
  };
  const std::vector<Case> cases = {
      {0.1307, 0.3081,
       "0103dbab6b16bfcaea0aa75d7377b4b22bb6792081600921bee4a17ff9c4d33e"},
      {0.5, 0.5, "d15e8ce72284446496a6de66e8a4795818530b44cd2c3dd415077364535c3c1a"},
      {0, 1, "010413efe9fc4438fee48de66c4d09f377b28af6a9fe2522201e8c1dbb831fc8"}};
  std::vector<uint8_t> pixels(256);
  std::iota(pixels.begin(), pixels.end(), uint8_t{0});
  Dataset ramp;
  ramp.size = 1;
  ramp.inputs.shape = {1, 16, 16};
  ramp.inputs.bytes = pixels;
  ramp.targets.bytes = std::vector<uint8_t>(1);
  for (const auto& [mean, std, sha256] : cases) {
    LoaderOptions options;
    options.mean = {mean};
    options.std = {std};
    Loader loader(ramp, in_order(), options);
    Batch batch;
    loader.seek(0);
    ASSERT_TRUE(loader.next(batch));
    Sha256 hash;
    hash.update(batch.inputs.data_ptr(), batch.inputs.nbytes());
    EXPECT_EQ(hash.hex_digest(), sha256) << mean;
  }
}

TEST(Loader, GathersChannelsRowsAndColumns) {
  Loader loader(colours(5), in_order(), raw(2));
  EXPECT_EQ(loader.num_batches(), 3);
  Batch batch;
  loader.seek(0, 2);
  ASSERT_TRUE(loader.next(batch));
  EXPECT_THAT(batch.inputs.sizes().vec(), ElementsAre(2, 3, 2, 4));
  EXPECT_THAT(targets_of(batch), ElementsAre(2, 3));
  EXPECT_TRUE(shows_its_labels(batch));
  EXPECT_EQ(
      batch.inputs[1][2][1][3].item<float>(),
      static_cast<float>(pixel(3, 2 * 8 + 1 * 4 + 3)) / 255.0f);
}

TEST(Loader, PadsWithBlackBeforeNormalising) {
  auto options = raw(2);
  options.pad = 2;
  options.mean = {0.25};
  options.std = {0.5};
  Loader loader(colours(3), in_order(), options);
  Batch batch;
  loader.seek(0);
  // Twice, because the buffers are reused.
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(loader.next(batch));
    ASSERT_THAT(batch.inputs.sizes().slice(1).vec(), ElementsAre(3, 6, 8));
    const auto inner = batch.inputs.narrow(2, 2, 2).narrow(3, 2, 4);
    Batch unpadded = batch;
    unpadded.inputs = inner.mul(0.5).add(0.25);
    EXPECT_NEAR(
        unpadded.inputs[0][2][1][3].item<float>(),
        pixel(targets_of(batch)[0], 23) / 255.0, 1e-6);
    // Everything else is (0 - mean) / std.
    const double sum = batch.inputs.to(at::kDouble).sum().item<double>();
    const double border = sum - inner.to(at::kDouble).sum().item<double>();
    EXPECT_NEAR(border, -0.5 * (48 - 8) * 3 * static_cast<double>(batch.count()), 1e-4);
    EXPECT_EQ(batch.inputs[0][1][1][3].item<float>(), -0.5f);
    EXPECT_EQ(batch.inputs[0][1][4][3].item<float>(), -0.5f);
    EXPECT_EQ(batch.inputs[0][1][3][1].item<float>(), -0.5f);
    EXPECT_EQ(batch.inputs[0][1][3][6].item<float>(), -0.5f);
  }
}

TEST(Loader, BatchesHaveTheirPositionsAndTheGlobalCount) {
  // 20 samples over 3 shards, padded: 7 each, in batches of 4 and 3.
  SamplerOptions sampler;
  sampler.num_shards = 3;
  sampler.seed = 5;
  for (sampler.shard = 0; sampler.shard < 3; ++sampler.shard) {
    Loader loader(colours(20), sampler, raw(4));
    EXPECT_EQ(loader.num_batches(), 2);
    sampler.size = 20;
    const auto indices = shard_indices(sampler, 3);
    EXPECT_EQ(epoch_targets(loader, 3), indices);
    Batch batch;
    loader.seek(3);
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.count(), 4);
    EXPECT_EQ(batch.first_position, sampler.shard);
    EXPECT_EQ(batch.position_stride, 3);
    EXPECT_EQ(batch.global_count, 12);
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.count(), 3);
    EXPECT_EQ(batch.targets.numel(), 3);
    EXPECT_EQ(batch.first_position, 12 + sampler.shard);
    EXPECT_EQ(batch.position_stride, 3);
    EXPECT_EQ(batch.global_count, 9);
    EXPECT_TRUE(shows_its_labels(batch));
    EXPECT_FALSE(loader.next(batch));
    EXPECT_FALSE(loader.next(batch));
  }
}

// Reads the rest of an epoch on three shards. Expects that the global count of each
// step is the number of samples of all shards that are not ignored.
void expect_global_counts(SamplerOptions sampler, int64_t micro_batches) {
  auto loading = raw(sampler.batch > 0 ? sampler.batch / micro_batches : 2);
  loading.micro_batches = micro_batches;
  loading.num_buffers = micro_batches;
  loading.ignore_index = 3;
  auto data = colours(23);
  data.targets.bytes = [] {
    std::vector<uint8_t> labels(23, 0);
    labels[1] = labels[4] = labels[20] = 3;
    return labels;
  }();
  const auto first = std::exchange(sampler.first_position, 0);
  std::map<int64_t, std::pair<int64_t, int64_t>> counts;
  for (sampler.shard = 0; sampler.shard < 3; ++sampler.shard) {
    Loader loader(data, sampler, loading);
    loader.seek(1, first);
    for (int64_t step = 0; step < loader.num_steps(); ++step) {
      Batch batch;
      for (int64_t i = 0; i < micro_batches && loader.next(batch); ++i) {
        EXPECT_EQ(batch.ignored, batch.targets.eq(3).sum().item<int64_t>());
        auto& [counted, global] = counts[step];
        counted += batch.count() - batch.ignored;
        EXPECT_TRUE(global == 0 || global == batch.global_count);
        global = batch.global_count;
      }
    }
  }
  EXPECT_GT(counts.size(), 1u);
  for (const auto& [step, count] : counts) {
    EXPECT_EQ(count.first, count.second) << "step " << step;
  }
}

TEST(Loader, GlobalCountLeavesOutIgnoredSamples) {
  for (const auto tail : {Tail::pad, Tail::drop, Tail::keep}) {
    for (const int64_t first : {0, 7}) {
      for (const int64_t micro_batches : {1, 2}) {
        SamplerOptions sampler;
        sampler.num_shards = 3;
        sampler.seed = 5;
        sampler.tail = tail;
        sampler.first_position = first;
        expect_global_counts(sampler, micro_batches);
        if (tail == Tail::keep) {
          sampler.batch = 4;
          expect_global_counts(sampler, micro_batches);
        }
      }
    }
  }
}

TEST(Loader, EachEpochHasARepeatableOrder) {
  SamplerOptions sampler;
  sampler.seed = 9;
  Loader loader(colours(40), sampler, raw(7));
  const auto first = epoch_targets(loader, 0);
  const auto second = epoch_targets(loader, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(epoch_targets(loader, 0), first);
  Loader again(colours(40), sampler, raw(7));
  EXPECT_EQ(epoch_targets(again, 1), second);
  sampler.seed = 8;
  Loader other(colours(40), sampler, raw(7));
  EXPECT_NE(epoch_targets(other, 0), first);
}

TEST(Loader, SeekGivesTheSameBatchAsReading) {
  SamplerOptions sampler;
  sampler.num_shards = 2;
  sampler.shard = 1;
  Loader loader(colours(40), sampler, raw(3));
  const auto whole = epoch_targets(loader, 4);
  EXPECT_EQ(whole.size(), 20u);
  const auto tail = epoch_targets(loader, 4, 30);
  EXPECT_EQ(tail, std::vector<int64_t>(whole.begin() + 15, whole.end()));
  Loader fresh(colours(40), sampler, raw(3));
  Batch batch;
  fresh.seek(4, 30);
  ASSERT_TRUE(fresh.next(batch));
  EXPECT_EQ(batch.first_position, 31);
  EXPECT_TRUE(shows_its_labels(batch));
}

TEST(Loader, BatchesStayValidForTheNumberOfBuffers) {
  auto options = raw(2);
  options.num_buffers = 3;
  Loader loader(colours(12), in_order(), options);
  std::vector<Batch> taken(4);
  loader.seek(0);
  for (auto& batch : taken) {
    ASSERT_TRUE(loader.next(batch));
    // This batch and the two previous batches.
    for (const auto* kept = &taken[0]; kept <= &batch; ++kept) {
      if (&batch - kept < 3) {
        EXPECT_TRUE(shows_its_labels(*kept));
        EXPECT_EQ(targets_of(*kept)[0], 2 * (kept - &taken[0]));
      }
    }
  }
  EXPECT_EQ(taken[3].inputs.data_ptr(), taken[0].inputs.data_ptr());
}

TEST(Loader, EvaluationShardsReadEachSampleOnce) {
  // 13 over 4 shards: 4, 3, 3 and 3 samples, in batches of 3.
  std::vector<int> seen(13, 0);
  for (int64_t shard = 0; shard < 4; ++shard) {
    SamplerOptions sampler = in_order();
    sampler.num_shards = 4;
    sampler.shard = shard;
    sampler.tail = Tail::keep;
    Loader loader(colours(13), sampler, raw(3));
    for (const int64_t target : epoch_targets(loader, 0)) {
      ++seen[static_cast<size_t>(target)];
    }
    EXPECT_EQ(loader.num_batches(), shard == 0 ? 2 : 1);
    Batch batch;
    loader.seek(0);
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.global_count, 12);
    if (shard == 0) {
      ASSERT_TRUE(loader.next(batch));
      EXPECT_EQ(batch.global_count, 1);
    }
  }
  EXPECT_EQ(seen, std::vector<int>(13, 1));
}

// Two ranks, two micro-batches of four: the samples are dealt to all four in turn.
TEST(Loader, DealsAStepsSamplesToMicroBatchesAsToShards) {
  SamplerOptions sampler = in_order();
  sampler.num_shards = 2;
  sampler.shard = 1;
  sampler.tail = Tail::keep;
  auto options = raw(4);
  options.micro_batches = 2;
  options.num_buffers = 5;
  // 16 in the first step, 5 in the second: positions 16 to 20.
  Loader loader(colours(21), sampler, options);
  EXPECT_EQ(loader.num_steps(), 2);
  EXPECT_EQ(loader.num_batches(), 4);
  loader.seek(0);
  std::vector<std::vector<int64_t>> taken;
  std::vector<int64_t> global_counts;
  for (Batch batch; loader.next(batch);) {
    taken.push_back(targets_of(batch));
    global_counts.push_back(batch.global_count);
    EXPECT_EQ(batch.first_position, taken.back()[0]);
    EXPECT_EQ(batch.position_stride, 4);
    EXPECT_TRUE(batch.samples.equal(batch.targets));
  }
  EXPECT_THAT(
      taken, testing::ElementsAre(
                 testing::ElementsAre(1, 5, 9, 13), testing::ElementsAre(3, 7, 11, 15),
                 testing::ElementsAre(17), testing::ElementsAre(19)));
  EXPECT_THAT(global_counts, testing::ElementsAre(16, 16, 5, 5));
}

// 10 samples over 3 shards of 2 micro-batches of 1: a step has 6, the last step 4.
TEST(Loader, CanMakeEqualNumbersOfBatchesForAllShards) {
  for (const int64_t shard : {0, 1, 2}) {
    SCOPED_TRACE(shard);
    auto options = raw(1);
    options.micro_batches = 2;
    SamplerOptions sampler;
    sampler.num_shards = 3;
    sampler.shard = shard;
    sampler.shuffle = false;
    sampler.tail = Tail::keep;
    const auto counts = [&] {
      Loader loader(colours(10), sampler, options);
      loader.seek(0);
      std::vector<int64_t> all;
      Batch batch;
      while (loader.next(batch)) {
        EXPECT_EQ(batch.count(), batch.targets.numel());
        EXPECT_EQ(batch.global_count, all.size() < 2 ? 6 : 4);
        all.push_back(batch.count());
      }
      return all;
    };
    const bool first = shard == 0;
    EXPECT_EQ(counts().size(), first ? 4u : 3u);
    options.empty_batches = true;
    EXPECT_EQ(counts(), (std::vector<int64_t>{1, 1, 1, first ? 1 : 0}));
  }
}

TEST(Loader, ABatchLargerThanTheDataUsesTheMemoryOfTheData) {
  auto options = raw(int64_t{1} << 40);
  options.num_buffers = int64_t{1} << 40;
  Loader loader(colours(6), in_order(), options);
  loader.seek(0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.count(), 6);
  EXPECT_EQ(batch.inputs.storage().nbytes(), 6u * kImageBytes * sizeof(float));
}

TEST(Loader, ALimitedDatasetEndsAtItsLimit) {
  Dataset limited = colours(10);
  limited.size = 4;
  Loader loader(limited, SamplerOptions{}, raw(3));
  EXPECT_EQ(loader.num_batches(), 2);
  EXPECT_THAT(epoch_targets(loader, 0), testing::UnorderedElementsAre(0, 1, 2, 3));
}

TEST(Loader, InvalidOptionsAreRejected) {
  const auto message = [](const LoaderOptions& options) {
    return error_of<ConfigError>([&] { Loader(colours(4), in_order(), options); });
  };
  EXPECT_THAT(message(raw(0)), HasSubstr("batch_size is 0"));
  for (const double std : {0.0, -1.0, std::nan("")}) {
    auto options = raw(2);
    options.std = {std};
    EXPECT_THAT(message(options), HasSubstr("expected std > 0"));
  }
  auto options = raw(2);
  options.pad = -1;
  EXPECT_THAT(message(options), HasSubstr("pad"));
  expect_error<ConfigError>([] { Loader(colours(0), in_order(), raw(2)); }, {"empty"});
  EXPECT_THROW(
      {
        Loader loader(colours(4), in_order(), raw(2));
        Batch batch;
        EXPECT_FALSE(loader.next(batch));
      },
      InternalError);
}

}  // namespace tandem::loader_test

#include "tandem/data/input_converter.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/loader.h"
#include "tests/core/expect.h"
#include "tests/data/some_samples.h"

namespace tandem::augmentation_test {

constexpr int64_t kSize = 24;
constexpr int64_t kHeight = 5;
constexpr int64_t kWidth = 20;
constexpr int64_t kSeed = 11;

// Images whose pixels differ. The label is the number of the sample.
Dataset images(int64_t channels) {
  const auto pixel = [](int64_t i) { return i * 37 + i / 100; };
  const auto label = [](int64_t i) { return i; };
  return dataset_of(
      kSize, make_samples<uint8_t>({channels, kHeight, kWidth}, kSize, pixel),
      make_samples<int64_t>({}, kSize, label));
}

LoaderOptions augmented(const std::string& text, int64_t batch_size = 3) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.augmentation = parse_augmentation(text);
  return options;
}

SamplerOptions shuffled(int64_t num_shards = 1, int64_t shard = 0) {
  SamplerOptions options;
  options.num_shards = num_shards;
  options.shard = shard;
  options.seed = kSeed;
  return options;
}

// Pads and crops an image, mirrors it, pads it for the model, and normalizes it.
at::Tensor augment(
    at::Tensor image, const AugmentationDraw& draw, const LoaderOptions& options) {
  const int64_t crop = options.augmentation.crop;
  image = at::constant_pad_nd(image, {crop, crop, crop, crop}, 0);
  image = image.slice(1, crop + draw.down, crop + draw.down + kHeight)
              .slice(2, crop + draw.right, crop + draw.right + kWidth);
  if (draw.mirror) {
    image = image.flip({2});
  }
  const int64_t pad = options.pad;
  image = at::constant_pad_nd(image, {pad, pad, pad, pad}, 0);
  const auto number = [](const std::vector<double>& values) {
    return at::tensor(values).to(at::kFloat).view({-1, 1, 1});
  };
  return image.to(at::kFloat)
      .div(255)
      .sub(number(options.mean))
      .div(number(options.std));
}

// Images of an epoch, by their global position.
using Images = std::map<int64_t, at::Tensor>;

void read_images(Images& all, Loader& loader, int64_t epoch, int64_t from = 0) {
  Batch batch;
  loader.seek(epoch, from);
  for (int64_t step = loader.num_steps(); step > 0; --step) {
    while (loader.next(batch)) {
      for (int64_t i = 0; i < batch.count(); ++i) {
        all[batch.first_position + i * batch.position_stride] = batch.inputs[i].clone();
      }
    }
  }
}

Images read_images(const SamplerOptions& sampler, const LoaderOptions& options) {
  Images all;
  SamplerOptions one = sampler;
  for (one.shard = 0; one.shard < one.num_shards; ++one.shard) {
    Loader loader(images(3), one, options);
    read_images(all, loader, 2);
  }
  return all;
}

void expect_equal(const Images& a, const Images& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [position, image] : a) {
    EXPECT_TRUE(image.equal(b.at(position))) << position;
  }
}

TEST(ParseAugmentation, ReadsFlipAndCrop) {
  EXPECT_FALSE(parse_augmentation("").any());
  EXPECT_TRUE(parse_augmentation("flip").flip);
  EXPECT_EQ(parse_augmentation("flip").crop, 0);
  EXPECT_FALSE(parse_augmentation("crop:1").flip);
  EXPECT_EQ(parse_augmentation("crop:1").crop, 1);
  for (const char* text : {"flip,crop:1024", "crop:1024,flip"}) {
    EXPECT_TRUE(parse_augmentation(text).flip);
    EXPECT_EQ(parse_augmentation(text).crop, 1'024);
  }
}

TEST(ParseAugmentation, OtherTextsAreErrors) {
  for (const std::string text :
       {"flop", "Flip", " flip", "crop", "crop:", "crop:0", "crop:-1", "crop:1025",
        "crop:2x", "crop:1.5", "flip;crop:4", "flip,,crop:4", ","}) {
    expect_error<ConfigError>(
        [&] { return parse_augmentation(text); },
        {"[data] augment is '" + text + "', expected flip, crop:PIXELS"});
  }
}

TEST(DrawAugmentation, DependsOnSeedEpochAndPosition) {
  const auto augmentation = parse_augmentation("flip,crop:1000");
  const auto draw = [&](uint64_t seed, int64_t epoch, int64_t position) {
    const auto all = draw_augmentation(augmentation, seed, epoch, position);
    return std::pair(all.down, all.right);
  };
  EXPECT_EQ(draw(1, 2, 3), draw(1, 2, 3));
  EXPECT_NE(draw(1, 2, 3), draw(4, 2, 3));
  EXPECT_NE(draw(1, 2, 3), draw(1, 3, 3));
  EXPECT_NE(draw(1, 2, 3), draw(1, 2, 4));
  // Exchanged arguments give other numbers.
  EXPECT_NE(draw(1, 2, 3), draw(2, 1, 3));
  EXPECT_NE(draw(1, 2, 3), draw(1, 3, 2));
}

// Each of 50 combinations is expected 400 times, with a standard deviation of 20.
TEST(DrawAugmentation, AllOffsetsAndBothDirectionsAreEquallyFrequent) {
  const auto augmentation = parse_augmentation("flip,crop:2");
  std::map<std::tuple<int64_t, int64_t, bool>, int> counts;
  for (int64_t position = 0; position < 20'000; ++position) {
    const auto draw = draw_augmentation(augmentation, 1, 0, position);
    ++counts[{draw.down, draw.right, draw.mirror}];
  }
  EXPECT_EQ(counts.size(), 50u);
  for (const auto& [draw, count] : counts) {
    EXPECT_LE(std::abs(std::get<0>(draw)), 2);
    EXPECT_LE(std::abs(std::get<1>(draw)), 2);
    EXPECT_NEAR(count, 400, 100);
  }
}

TEST(DrawAugmentation, HasOnlyTheChangesOfTheOptions) {
  for (int64_t position = 0; position < 100; ++position) {
    const auto flip = draw_augmentation(parse_augmentation("flip"), 1, 0, position);
    EXPECT_EQ(flip.down, 0);
    EXPECT_EQ(flip.right, 0);
    const auto crop = draw_augmentation(parse_augmentation("crop:4"), 1, 0, position);
    EXPECT_FALSE(crop.mirror);
  }
}

TEST(Augmentation, ImagesEqualAtensOperations) {
  for (const char* text : {"", "flip", "crop:2", "flip,crop:5"}) {
    for (const int64_t channels : {1, 3}) {
      for (const int64_t pad : {0, 2}) {
        for (const bool per_channel : {false, true}) {
          SCOPED_TRACE(testing::Message() << text << " " << channels << " " << pad);
          auto options = augmented(text);
          options.pad = pad;
          if (per_channel && channels == 3) {
            options.mean = {0.1, 0.2, 0.3};
            options.std = {0.4, 0.5, 0.7};
          }
          const auto data = images(channels);
          const auto whole = tensor_of(data.inputs, kSize);
          Loader loader(data, shuffled(), options);
          // Twice, because the loader reuses the memory of batches.
          for (const int64_t epoch : {0, 1}) {
            Batch batch;
            for (loader.seek(epoch); loader.next(batch);) {
              for (int64_t i = 0; i < batch.count(); ++i) {
                const auto draw = draw_augmentation(
                    options.augmentation, kSeed, epoch, batch.first_position + i);
                const auto image = whole[batch.targets[i].item<int64_t>()];
                ASSERT_TRUE(batch.inputs[i].equal(augment(image, draw, options)));
              }
            }
          }
        }
      }
    }
  }
}

TEST(Augmentation, ShardsAndMicroBatchesGiveTheSameImages) {
  const auto one = read_images(shuffled(), augmented("flip,crop:3", 6));
  EXPECT_EQ(one.size(), 24u);
  for (const int64_t num_shards : {2, 3}) {
    expect_equal(
        read_images(shuffled(num_shards), augmented("flip,crop:3", 6 / num_shards)),
        one);
    auto options = augmented("flip,crop:3", 4);
    options.micro_batches = 2;
    expect_equal(read_images(shuffled(num_shards), options), one);
    // The shards divide batches of 8 samples.
    auto divided = shuffled(num_shards);
    divided.tail = Tail::keep;
    divided.batch = 8;
    expect_equal(read_images(divided, options), one);
  }
}

TEST(Augmentation, AResumedEpochHasTheSameImages) {
  const auto whole = read_images(shuffled(), augmented("flip,crop:3"));
  Images resumed;
  for (const int64_t shard : {0, 1, 2}) {
    Loader loader(images(3), shuffled(3, shard), augmented("flip,crop:3"));
    read_images(resumed, loader, 2, 12);
  }
  EXPECT_EQ(resumed.size(), 12u);
  for (const auto& [position, image] : resumed) {
    EXPECT_GE(position, 12);
    EXPECT_TRUE(image.equal(whole.at(position))) << position;
  }
}

// With a fixed order of samples, only the augmentation differs.
TEST(Augmentation, EachEpochHasOtherImages) {
  Loader loader(images(3), shuffled(), augmented("flip,crop:3"));
  Images first;
  read_images(first, loader, 0);
  Batch batch;
  int equal = 0;
  for (loader.seek(1, 0, 0); loader.next(batch);) {
    for (int64_t i = 0; i < batch.count(); ++i) {
      equal += batch.inputs[i].equal(first.at(batch.first_position + i)) ? 1 : 0;
    }
  }
  EXPECT_LT(equal, 4);
}

}  // namespace tandem::augmentation_test

// Types and shapes of samples in a loader.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/loader.h"
#include "tests/core/expect.h"
#include "tests/data/some_samples.h"

namespace tandem::sample_types_test {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSize = 7;

const std::vector<std::vector<int64_t>> kShapes = {{},     {5},        {1},
                                                   {3, 4}, {2, 3, 40}, {2, 3, 2, 5}};

// One class per sample.
Samples classes(int64_t count = kSize) {
  return make_samples<int64_t>({}, count, [](int64_t i) { return i; });
}

LoaderOptions normalized(
    const std::vector<double>& mean, const std::vector<double>& std,
    int64_t batch_size = 3) {
  LoaderOptions options;
  options.mean = mean;
  options.std = std;
  options.batch_size = batch_size;
  return options;
}

// Returns the inputs of an epoch in the order of the samples.
at::Tensor read_inputs(const Dataset& data, const LoaderOptions& options) {
  Loader loader(data, in_order(), options);
  std::vector<at::Tensor> inputs;
  Batch batch;
  for (loader.seek(0); loader.next(batch);) {
    inputs.push_back(batch.inputs.clone());
  }
  return at::cat(inputs);
}

at::Tensor read_targets(const Samples& targets) {
  auto data = dataset_of(
      kSize, make_samples<float>({2}, kSize, [](int64_t i) { return i; }), targets);
  Loader loader(data, in_order(), normalized({0}, {1}));
  std::vector<at::Tensor> all;
  Batch batch;
  for (loader.seek(0); loader.next(batch);) {
    EXPECT_EQ(
        batch.global_count, batch.count() * (data.has_classes() ? targets.numel() : 1));
    all.push_back(batch.targets.clone());
  }
  return at::cat(all);
}

// Returns a normalization with one number, or with one for each element of the first
// size of a shape.
LoaderOptions options_for(const std::vector<int64_t>& shape, bool is_single) {
  if (is_single || shape.empty()) {
    return normalized({0.3}, {0.7});
  }
  LoaderOptions options = normalized({}, {});
  for (int64_t i = 0; i < shape[0]; ++i) {
    options.mean.push_back(0.1 + 0.3 * static_cast<double>(i));
    options.std.push_back(0.2 + 0.5 * static_cast<double>(i));
  }
  return options;
}

// Normalizes samples with ATen's operations.
at::Tensor normalize(const at::Tensor& samples, const LoaderOptions& options) {
  std::vector<int64_t> sizes(static_cast<size_t>(samples.dim()), 1);
  if (samples.dim() > 1) {
    sizes[1] = -1;
  }
  const auto numbers = [&](const std::vector<double>& values) {
    return at::tensor(values).to(at::kFloat).view(sizes);
  };
  return samples.sub(numbers(options.mean)).div(numbers(options.std));
}

TEST(LoaderInputs, FloatsAreNormalizedAsByAten) {
  for (const auto& shape : kShapes) {
    for (const bool is_single : {false, true}) {
      SCOPED_TRACE(shape_text(shape));
      const auto value = [](int64_t i) { return 0.37 * static_cast<double>(i) - 20; };
      const auto data =
          dataset_of(kSize, make_samples<float>(shape, kSize, value), classes());
      const auto options = options_for(shape, is_single);
      const auto inputs = read_inputs(data, options);
      EXPECT_EQ(inputs.scalar_type(), at::kFloat);
      EXPECT_TRUE(inputs.equal(normalize(tensor_of(data.inputs, kSize), options)));
    }
  }
}

TEST(LoaderInputs, OnlyBytesOfImagesAreDividedBy255) {
  for (const auto& shape : kShapes) {
    for (const bool is_single : {false, true}) {
      SCOPED_TRACE(shape_text(shape));
      const auto pixel = [](int64_t i) { return i * 37; };
      const auto data =
          dataset_of(kSize, make_samples<uint8_t>(shape, kSize, pixel), classes());
      const auto options = options_for(shape, is_single);
      const auto numbers =
          tensor_of(data.inputs, kSize).to(at::kFloat).div(shape.size() == 3 ? 255 : 1);
      EXPECT_TRUE(read_inputs(data, options).equal(normalize(numbers, options)));
    }
  }
}

TEST(LoaderInputs, IndicesAreUnchanged) {
  for (const auto& shape : kShapes) {
    SCOPED_TRACE(shape_text(shape));
    const auto index = [](int64_t i) { return (i << 40) - i; };
    auto data =
        dataset_of(kSize, make_samples<int64_t>(shape, kSize, index), classes());
    EXPECT_TRUE(
        read_inputs(data, normalized({0.5}, {2})).equal(tensor_of(data.inputs, kSize)));
    const auto byte = [](int64_t i) { return i * 37; };
    data.inputs = make_samples<uint8_t>(shape, kSize, byte);
    data.tokens = true;
    const auto tokens = read_inputs(data, normalized({0.5}, {2}));
    EXPECT_EQ(tokens.scalar_type(), at::kLong);
    EXPECT_TRUE(tokens.equal(tensor_of(data.inputs, kSize).to(at::kLong)));
  }
}

TEST(LoaderInputs, ANumberThatIsNotFiniteIsReportedWithItsSample) {
  using Limits = std::numeric_limits<float>;
  for (const float bad :
       {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
    for (const std::vector<double>& mean : {std::vector<double>{0}, {0, 0, 0}}) {
      std::vector<float> numbers(30, 1.5F);
      numbers[0] = Limits::max();
      numbers[1] = Limits::denorm_min();
      numbers[3 * 8 + 2] = bad;
      numbers[3 * 9 + 1] = bad;
      auto data = dataset_of(10, samples_of({3}, numbers), classes(10));
      data.name = "table";
      const auto options = normalized(mean, std::vector<double>(mean.size(), 1), 5);
      Loader loader(data, in_order(), options);
      loader.seek(0);
      Batch batch;
      EXPECT_TRUE(loader.next(batch));
      expect_error<DataError>(
          [&] { (void)loader.next(batch); },
          {"[data] sample 8 of 'table' has an input that is not finite"});
    }
  }
}

TEST(LoaderTargets, ValuesAreUnchanged) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{}, {1}, {3}, {2, 3}, {2, 3, 4}}) {
    SCOPED_TRACE(shape_text(shape));
    const auto value = [](int64_t i) { return 0.1 * static_cast<double>(i) - 3; };
    const auto targets = make_samples<float>(shape, kSize, value);
    EXPECT_TRUE(read_targets(targets).equal(tensor_of(targets, kSize)));
  }
}

TEST(LoaderTargets, ClassesAreInt64) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{}, {1}, {4}, {2, 3}}) {
    SCOPED_TRACE(shape_text(shape));
    const auto label = [](int64_t i) { return i * 100'000; };
    const auto targets = make_samples<int64_t>(shape, kSize, label);
    EXPECT_TRUE(read_targets(targets).equal(tensor_of(targets, kSize)));
    const auto byte = [](int64_t i) { return i * 37; };
    const auto bytes = make_samples<uint8_t>(shape, kSize, byte);
    const auto read = read_targets(bytes);
    EXPECT_EQ(read.scalar_type(), at::kLong);
    EXPECT_TRUE(read.equal(tensor_of(bytes, kSize).to(at::kLong)));
  }
}

// Sums over the shards of a step.
struct Counts {
  int64_t counted = 0;
  std::set<int64_t> global;
};

// Reads two epochs from a position on all shards. Expects that the global count of each
// step is the number of positions of all shards that are not ignored.
void expect_global_counts(
    const Dataset& data, SamplerOptions sampler, const LoaderOptions& loading,
    int64_t from) {
  constexpr int64_t kEpoch = 3;
  std::map<int64_t, Counts> steps;
  int64_t ignored = 0;
  for (sampler.shard = 0; sampler.shard < sampler.num_shards; ++sampler.shard) {
    Loader loader(data, sampler, loading);
    for (const int64_t epoch : {kEpoch - 1, kEpoch}) {
      loader.seek(epoch, from, 0);
      for (int64_t step = 0; step < loader.num_steps(); ++step) {
        Batch batch;
        for (int64_t i = 0; i < loading.micro_batches && loader.next(batch); ++i) {
          const auto found = batch.targets.eq(loading.ignore_index).sum();
          EXPECT_EQ(batch.ignored, found.item<int64_t>());
          if (epoch == kEpoch) {
            steps[step].counted += batch.targets.numel() - batch.ignored;
            steps[step].global.insert(batch.global_count);
          }
          ignored += batch.ignored;
        }
      }
    }
  }
  EXPECT_GT(ignored, 0);
  EXPECT_GT(steps.size(), 1u);
  for (const auto& [step, counts] : steps) {
    EXPECT_THAT(counts.global, ElementsAre(counts.counted)) << "step " << step;
  }
}

void expect_global_counts(const Dataset& data, const LoaderOptions& options) {
  for (const int64_t num_shards : {1, 2, 3}) {
    for (const int64_t micro_batches : {1, 2}) {
      for (const auto tail : {Tail::pad, Tail::drop, Tail::keep}) {
        SCOPED_TRACE(testing::Message() << num_shards << " shards, " << micro_batches);
        SamplerOptions sampler;
        sampler.num_shards = num_shards;
        sampler.seed = 5;
        sampler.tail = tail;
        LoaderOptions loading = options;
        loading.batch_size = 2;
        loading.micro_batches = micro_batches;
        loading.num_buffers = micro_batches;
        for (const int64_t from : {0, 7}) {
          expect_global_counts(data, sampler, loading, from);
          if (tail == Tail::keep) {
            auto divided = sampler;
            divided.batch = 2 * micro_batches;
            expect_global_counts(data, divided, loading, from);
          }
        }
      }
    }
  }
}

TEST(LoaderTargets, IgnoredPositionsDoNotCount) {
  const auto label = [](int64_t i) { return i % 5 == 0 || i % 7 == 0 ? -100 : i % 4; };
  for (const auto& shape : std::vector<std::vector<int64_t>>{{}, {3}}) {
    const auto data = dataset_of(
        23, make_samples<float>({2}, 23, [](int64_t i) { return i; }),
        make_samples<int64_t>(shape, 23, label));
    expect_global_counts(data, normalized({0}, {1}));
  }
}

// A text of different bytes: samples of 4 bytes, with the next bytes as targets.
Dataset text(int64_t size = 10) {
  const auto byte = [](int64_t i) { return i; };
  auto data = dataset_of(
      size, make_samples<uint8_t>({4}, size, byte),
      make_samples<uint8_t>({4}, size, [](int64_t i) { return i + 1; }));
  data.tokens = data.is_sequence = true;
  return data;
}

LoaderOptions random_starts() {
  auto options = normalized({0}, {1});
  options.random_starts = true;
  return options;
}

TEST(RandomStarts, AllStartsOccurAndTargetsAreTheNextBytes) {
  SamplerOptions sampler;
  sampler.seed = 3;
  Loader loader(text(), sampler, random_starts());
  std::set<int64_t> starts;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    Batch batch;
    for (loader.seek(epoch); loader.next(batch);) {
      const auto first = batch.inputs.slice(1, 0, 1);
      EXPECT_TRUE(batch.inputs.equal(first + at::arange(4)));
      EXPECT_TRUE(batch.targets.equal(batch.inputs + 1));
      for (int64_t i = 0; i < batch.count(); ++i) {
        const auto start = first[i].item<int64_t>();
        EXPECT_EQ(start, draw_start(37, 3, epoch, batch.first_position + i));
        starts.insert(start);
      }
    }
  }
  // From 0 to 36, the start of the last sample.
  EXPECT_EQ(starts.size(), 37u);
  EXPECT_EQ(*starts.begin(), 0);
  EXPECT_EQ(*starts.rbegin(), 36);
}

TEST(RandomStarts, DoNotDependOnShardsOrTheFirstPosition) {
  std::map<int64_t, at::Tensor> whole;
  const auto read = [&](const SamplerOptions& sampler, int64_t from, bool compares) {
    Loader loader(text(), sampler, random_starts());
    Batch batch;
    for (loader.seek(1, from); loader.next(batch);) {
      for (int64_t i = 0; i < batch.count(); ++i) {
        const int64_t position = batch.first_position + i * batch.position_stride;
        if (compares) {
          EXPECT_TRUE(batch.inputs[i].equal(whole.at(position)));
        } else {
          whole[position] = batch.inputs[i].clone();
        }
      }
    }
  };
  SamplerOptions sampler;
  read(sampler, 0, false);
  ASSERT_EQ(whole.size(), 10u);
  read(sampler, 6, true);
  sampler.num_shards = 2;
  for (sampler.shard = 0; sampler.shard < 2; ++sampler.shard) {
    read(sampler, 0, true);
    read(sampler, 4, true);
  }
}

TEST(RandomStarts, NeedTheOptionAndASequence) {
  const auto fixed = tensor_of(text().inputs, 10).to(at::kLong);
  EXPECT_TRUE(read_inputs(text(), normalized({0}, {1})).equal(fixed));
  auto data = text();
  data.is_sequence = false;
  EXPECT_TRUE(read_inputs(data, random_starts()).equal(fixed));
  EXPECT_FALSE(read_inputs(text(), random_starts()).equal(fixed));
}

TEST(RandomStarts, IgnoredPositionsDoNotCount) {
  auto data = text(23);
  data.targets = make_samples<uint8_t>({4}, 23, [](int64_t i) { return i % 3; });
  auto options = random_starts();
  options.ignore_index = 2;
  expect_global_counts(data, options);
}

std::string refusal(const InputOptions& options, const Dataset& data) {
  return error_of<ConfigError>([&] { check(options, data); });
}

Dataset of_shape(const Samples& inputs) {
  return dataset_of(kSize, inputs, classes());
}

TEST(CheckInputOptions, NeedsOneMeanOrOnePerChannel) {
  const auto zero = [](int64_t) { return 0; };
  const auto images = of_shape(make_samples<uint8_t>({3, 4, 5}, kSize, zero));
  const auto numbers = of_shape(make_samples<float>({}, kSize, zero));
  const std::vector<double> ones = {1, 1, 1};
  EXPECT_NO_THROW(check(normalized({0}, {1}), images));
  EXPECT_NO_THROW(check(normalized(ones, ones), images));
  EXPECT_NO_THROW(check(normalized({0}, {1}), numbers));
  EXPECT_THAT(
      refusal(normalized({0, 0}, {1, 1}), images),
      HasSubstr("2 means and 2 standard deviations, expected 1 or 3"));
  EXPECT_THAT(
      refusal(normalized({0}, ones), images),
      HasSubstr("1 means and 3 standard deviations"));
  EXPECT_THAT(refusal(normalized({}, {}), images), HasSubstr("0 means"));
  EXPECT_THAT(
      refusal(normalized({0, 0}, {1, 1}), numbers),
      HasSubstr("expected 1 or 1 of each for samples of the shape number"));
  for (const double std : {0.0, -1.0, std::nan("")}) {
    EXPECT_THAT(
        refusal(normalized(ones, {1, std, 1}), images), HasSubstr("expected std > 0"));
  }
}

TEST(CheckInputOptions, PaddingAndAugmentationNeedImages) {
  const auto zero = [](int64_t) { return 0; };
  const auto images = of_shape(make_samples<uint8_t>({3, 4, 6}, kSize, zero));
  auto tokens = images;
  tokens.tokens = true;
  InputOptions pad;
  pad.pad = 2;
  InputOptions flip;
  flip.augmentation.flip = true;
  InputOptions crop;
  crop.augmentation.crop = 4;
  for (const auto& options : {pad, flip, crop}) {
    EXPECT_NO_THROW(check(options, images));
    for (const auto& data :
         {tokens, of_shape(make_samples<float>({3, 4, 6}, kSize, zero)),
          of_shape(make_samples<uint8_t>({24}, kSize, zero)),
          of_shape(make_samples<int64_t>({3, 4, 6}, kSize, zero))}) {
      EXPECT_THAT(refusal(options, data), HasSubstr("needs images of uint8"));
    }
  }
  crop.augmentation.crop = 5;
  EXPECT_THAT(
      refusal(crop, images),
      HasSubstr("augment crops by 5 pixels, but images are 3x4x6"));
  pad.pad = -1;
  EXPECT_THAT(refusal(pad, images), HasSubstr("pad is -1, expected pad >= 0"));
}

}  // namespace tandem::sample_types_test

#include "tandem/data/normalization.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/mapped_file.h"
#include "tandem/data/sampler.h"

namespace tandem {

namespace {

constexpr double kMnistMean = 0.1307;
constexpr double kMnistStd = 0.3081;
constexpr int64_t kNumBlocks = 1'024;

// Sums of one channel or column. The shift is subtracted from each value, because
// squares of large values would round off a small variance.
struct Sums {
  double shift = 0;
  double count = 0;
  double sum = 0;
  double squares = 0;
  // Number of each value of uint8 elements.
  std::vector<int64_t> counts = std::vector<int64_t>(256);

  void add(double value, double times = 1) {
    value -= shift;
    count += times;
    sum += times * value;
    squares += times * value * value;
  }
};

void add_bytes(Sums& sums, double white, const uint8_t* from, int64_t count) {
  if (sums.count == 0) {
    sums.shift = from[0] / white;
  }
  for (int64_t i = 0; i < count; ++i) {
    ++sums.counts[from[i]];
  }
}

void add_numbers(Sums& sums, const float* from, int64_t count) {
  if (sums.count == 0) {
    sums.shift = from[0];
  }
  for (int64_t i = 0; i < count; ++i) {
    sums.add(from[i]);
  }
}

// Returns the value that becomes 1 before the normalization.
double white_of(const Dataset& data) {
  return data.has_images() ? 255 : 1;
}

// Returns the blocks of samples to measure, which are at equal distances. Each block
// has about 1 / kNumBlocks of `most_bytes`.
std::vector<Chunk> blocks_to_measure(
    const Dataset& data, const Samples& samples, int64_t most_bytes) {
  const int64_t sample_bytes = samples.sample_bytes();
  const int64_t each = std::max<int64_t>(1, most_bytes / kNumBlocks / sample_bytes);
  const int64_t num_all = (data.size + each - 1) / each;
  const bool is_large = samples.bytes_of(data.size) > most_bytes;
  const int64_t most = is_large ? most_bytes / (each * sample_bytes) : num_all;
  const int64_t count = std::clamp<int64_t>(most, 1, num_all);
  std::vector<Chunk> blocks;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = num_all * i / count * each;
    blocks.push_back({first, std::min(each, data.size - first)});
  }
  return blocks;
}

// Asks for the pages of a block of a mapped file: for all together, unless most pages
// between the first and the last belong to other samples.
void read_block_ahead(const Dataset& data, const Samples& samples, const Chunk& block) {
  constexpr size_t kMostGaps = 16;
  const auto address = [&](int64_t k) {
    return samples.at(data.place_of(block.first + k));
  };
  const auto width = static_cast<size_t>(samples.sample_bytes());
  const size_t all = static_cast<size_t>(address(block.count - 1) - address(0)) + width;
  if (all <= kMostGaps * width * static_cast<size_t>(block.count)) {
    read_ahead(address(0), all);
    return;
  }
  for (int64_t k = 0; k < block.count; ++k) {
    read_ahead(address(k), width);
  }
}

// Sums of the inputs or the targets of a data set.
std::vector<Sums> sums_of(
    const Dataset& data, const Samples& samples, int64_t most_bytes) {
  const auto& shape = samples.shape;
  const bool divides = shape.size() == 3 || shape.size() == 1;
  const int64_t slices = divides ? shape[0] : 1;
  const int64_t each = samples.numel() / slices;
  std::vector<Sums> all(static_cast<size_t>(slices));
  const auto add_sample = [&](int64_t i) {
    const uint8_t* from = samples.at(data.place_of(i));
    for (auto& sums : all) {
      if (samples.type == ElementType::uint8) {
        add_bytes(sums, white_of(data), from, each);
      } else {
        add_numbers(sums, reinterpret_cast<const float*>(from), each);
      }
      if (!std::isfinite(sums.sum)) {
        fail_not_finite(data, i);
      }
      from += each * static_cast<int64_t>(size_of(samples.type));
    }
  };
  const auto blocks = blocks_to_measure(data, samples, most_bytes);
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (samples.is_mapped && i + 1 < blocks.size()) {
      read_block_ahead(data, samples, blocks[i + 1]);
    }
    for (int64_t k = 0; k < blocks[i].count; ++k) {
      add_sample(blocks[i].first + k);
    }
  }
  return all;
}

Normalization normalization_of(std::vector<Sums> all, double white) {
  Normalization found;
  for (auto& sums : all) {
    for (size_t value = 0; value < sums.counts.size(); ++value) {
      sums.add(
          static_cast<double>(value) / white, static_cast<double>(sums.counts[value]));
    }
    const double mean = sums.sum / sums.count;
    const double variance = sums.squares / sums.count - mean * mean;
    found.mean.push_back(sums.shift + mean);
    found.std.push_back(variance > 0 ? std::sqrt(variance) : 1);
  }
  return found;
}

// Replaces words by numbers.
void settle(ChannelValues& mean, ChannelValues& std, const Normalization& found) {
  if (mean.kind() != ChannelValues::Kind::given) {
    mean = found.mean;
  }
  if (std.kind() != ChannelValues::Kind::given) {
    std = found.std;
  }
}

void settle_targets(DataOptions& options, const Dataset& train) {
  const auto is_given = [](const ChannelValues& values) {
    return values.kind() == ChannelValues::Kind::given;
  };
  if (!is_given(options.target_mean) || !is_given(options.target_std)) {
    settle(
        options.target_mean, options.target_std,
        train.target_mean.empty() ? measure_targets(train)
                                  : Normalization{train.target_mean, train.target_std});
  }
}

}  // namespace

Normalization measure_normalization(const Dataset& data, int64_t most_bytes) {
  if (data.has_indices() || data.size == 0) {
    return {{0}, {1}};
  }
  return normalization_of(sums_of(data, data.inputs, most_bytes), white_of(data));
}

Normalization measure_targets(const Dataset& data) {
  if (data.has_classes()) {
    throw ConfigError(
        "[data] --target-mean or --target-std is auto, but the targets of '" +
        data.name + "' are classes, expected numbers; leave both out");
  }
  return normalization_of(sums_of(data, data.targets, kMeasuredBytes), 1);
}

void settle_normalization(DataOptions& options, const Dataset& train) {
  settle_targets(options, train);
  using Kind = ChannelValues::Kind;
  const bool is_standard = options.mean.kind() != Kind::measured &&
                           options.std.kind() != Kind::measured && train.mean.empty() &&
                           train.has_images();
  if (options.mean.kind() == Kind::given && options.std.kind() == Kind::given) {
    return;
  }
  const Normalization found = is_standard ? Normalization{{kMnistMean}, {kMnistStd}}
                              : train.mean.empty()
                                  ? measure_normalization(train)
                                  : Normalization{train.mean, train.std};
  settle(options.mean, options.std, found);
}

}  // namespace tandem

#include "tandem/data/normalization.h"

#include <algorithm>
#include <cmath>

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
std::vector<Chunk> blocks_to_measure(const Dataset& data, int64_t most_bytes) {
  const int64_t sample_bytes = data.inputs.sample_bytes();
  const int64_t each = std::max<int64_t>(1, most_bytes / kNumBlocks / sample_bytes);
  const int64_t num_all = (data.size + each - 1) / each;
  const bool is_large = data.inputs.bytes_of(data.size) > most_bytes;
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
void read_block_ahead(const Dataset& data, const Chunk& block) {
  constexpr size_t kMostGaps = 16;
  const auto address = [&](int64_t k) {
    return data.inputs.at(data.place_of(block.first + k));
  };
  const auto width = static_cast<size_t>(data.inputs.sample_bytes());
  const size_t all = static_cast<size_t>(address(block.count - 1) - address(0)) + width;
  if (all <= kMostGaps * width * static_cast<size_t>(block.count)) {
    read_ahead(address(0), all);
    return;
  }
  for (int64_t k = 0; k < block.count; ++k) {
    read_ahead(address(k), width);
  }
}

std::vector<Sums> sums_of(const Dataset& data, int64_t most_bytes) {
  const Samples& inputs = data.inputs;
  const auto& shape = inputs.shape;
  const bool divides = shape.size() == 3 || shape.size() == 1;
  const int64_t slices = divides ? shape[0] : 1;
  const int64_t each = inputs.numel() / slices;
  std::vector<Sums> all(static_cast<size_t>(slices));
  const auto add_sample = [&](int64_t i) {
    const uint8_t* from = inputs.at(data.place_of(i));
    for (auto& sums : all) {
      if (inputs.type == ElementType::uint8) {
        add_bytes(sums, white_of(data), from, each);
      } else {
        add_numbers(sums, reinterpret_cast<const float*>(from), each);
      }
      if (!std::isfinite(sums.sum)) {
        fail_not_finite(data, i);
      }
      from += each * static_cast<int64_t>(size_of(inputs.type));
    }
  };
  const auto blocks = blocks_to_measure(data, most_bytes);
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (inputs.is_mapped && i + 1 < blocks.size()) {
      read_block_ahead(data, blocks[i + 1]);
    }
    for (int64_t k = 0; k < blocks[i].count; ++k) {
      add_sample(blocks[i].first + k);
    }
  }
  return all;
}

}  // namespace

Normalization measure_normalization(const Dataset& data, int64_t most_bytes) {
  if (data.has_indices() || data.size == 0) {
    return {{0}, {1}};
  }
  Normalization found;
  for (auto& sums : sums_of(data, most_bytes)) {
    for (size_t value = 0; value < sums.counts.size(); ++value) {
      sums.add(
          static_cast<double>(value) / white_of(data),
          static_cast<double>(sums.counts[value]));
    }
    const double mean = sums.sum / sums.count;
    const double variance = sums.squares / sums.count - mean * mean;
    found.mean.push_back(sums.shift + mean);
    found.std.push_back(variance > 0 ? std::sqrt(variance) : 1);
  }
  return found;
}

void settle_normalization(DataOptions& options, const Dataset& train) {
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
  if (options.mean.kind() != Kind::given) {
    options.mean = found.mean;
  }
  if (options.std.kind() != Kind::given) {
    options.std = found.std;
  }
}

}  // namespace tandem

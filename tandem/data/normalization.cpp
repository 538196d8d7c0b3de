#include "tandem/data/normalization.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/mapped_file.h"

namespace tandem {

namespace {

constexpr double kMnistMean = 0.1307;
constexpr double kMnistStd = 0.3081;
constexpr int64_t kMostMapped = 10'000;

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

void add(Sums& sums, ElementType type, const uint8_t* from, int64_t count) {
  const auto* numbers = reinterpret_cast<const float*>(from);
  const bool is_byte = type == ElementType::uint8;
  if (sums.count == 0) {
    sums.shift = is_byte ? from[0] / 255.0 : numbers[0];
  }
  if (is_byte) {
    for (int64_t i = 0; i < count; ++i) {
      ++sums.counts[from[i]];
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    sums.add(numbers[i]);
  }
}

std::vector<Sums> sums_of(const Dataset& data) {
  const Samples& inputs = data.inputs;
  const auto& shape = inputs.shape;
  const bool divides =
      shape.size() == 3 || (shape.size() == 1 && inputs.type == ElementType::float32);
  const int64_t slices = divides ? shape[0] : 1;
  const int64_t each = inputs.numel() / slices;
  const int64_t distance =
      inputs.is_mapped ? (data.size + kMostMapped - 1) / kMostMapped : 1;
  std::vector<Sums> all(static_cast<size_t>(slices));
  for (int64_t i = 0; i < data.size; i += distance) {
    const uint8_t* from = inputs.at(data.place_of(i));
    if (distance > 1) {
      read_ahead(from, static_cast<size_t>(inputs.sample_bytes()));
    }
    for (auto& sums : all) {
      add(sums, inputs.type, from, each);
      if (!std::isfinite(sums.sum)) {
        fail_not_finite(data, i);
      }
      from += each * static_cast<int64_t>(size_of(inputs.type));
    }
  }
  return all;
}

}  // namespace

Normalization measure_normalization(const Dataset& data) {
  if (data.has_indices() || data.size == 0) {
    return {{0}, {1}};
  }
  Normalization found;
  for (auto& sums : sums_of(data)) {
    for (size_t value = 0; value < sums.counts.size(); ++value) {
      sums.add(
          static_cast<double>(value) / 255, static_cast<double>(sums.counts[value]));
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

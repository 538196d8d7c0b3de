#include "tandem/data/subset.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/mapped_file.h"
#include "tandem/base/random.h"
#include "tandem/config/fields.h"

namespace tandem {

namespace {

std::vector<std::string> files_of(
    const Dataset& whole, const std::vector<int64_t>& samples) {
  std::vector<std::string> files;
  for (const int64_t sample : samples) {
    files.push_back((*whole.files)[static_cast<size_t>(sample)]);
  }
  return files;
}

// Returns no bytes if `from` has none, as targets of inputs for predictions.
Bytes copy_of(const Samples& from, const std::vector<int64_t>& samples) {
  if (from.bytes.empty()) {
    return {};
  }
  const auto width = static_cast<size_t>(from.sample_bytes());
  std::vector<uint8_t> bytes(width * samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    std::memcpy(bytes.data() + i * width, from.at(samples[i]), width);
  }
  return bytes;
}

// Returns `count` of `size` numbers, in ascending order: the first numbers of a
// permutation (Fisher and Yates).
std::vector<int64_t> choose(int64_t size, int64_t count, uint64_t seed) {
  std::vector<int64_t> numbers(static_cast<size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = mix_bits(mix_bits(seed) ^ static_cast<uint64_t>(i));
    const auto other = static_cast<size_t>(i) + bits % static_cast<uint64_t>(size - i);
    std::swap(numbers[static_cast<size_t>(i)], numbers[other]);
  }
  numbers.resize(static_cast<size_t>(count));
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// Returns the numbers below `size` that are not in `chosen`, which is sorted.
std::vector<int64_t> others(int64_t size, const std::vector<int64_t>& chosen) {
  std::vector<int64_t> rest;
  auto next = chosen.begin();
  for (int64_t i = 0; i < size; ++i) {
    if (next != chosen.end() && *next == i) {
      ++next;
    } else {
      rest.push_back(i);
    }
  }
  return rest;
}

Dataset end_of(Dataset& whole, int64_t count) {
  Dataset end = whole;
  whole.size -= count;
  whole.hashes = end.hashes = {};
  end.size = count;
  for (auto* samples : {&end.inputs, &end.targets}) {
    const auto first = static_cast<size_t>(samples->bytes_of(whole.size));
    samples->bytes = part_of(samples->bytes, first, samples->bytes.size() - first);
  }
  return end;
}

}  // namespace

Dataset samples_at(const Dataset& whole, std::vector<int64_t> samples) {
  Dataset part = whole;
  part.hashes = {};
  part.size = static_cast<int64_t>(samples.size());
  if (!whole.inputs.is_mapped) {
    part.inputs.bytes = copy_of(whole.inputs, samples);
    part.targets.bytes = copy_of(whole.targets, samples);
    if (whole.files) {
      part.files =
          std::make_shared<const std::vector<std::string>>(files_of(whole, samples));
    }
    return part;
  }
  for (auto& sample : samples) {
    sample = whole.place_of(sample);
  }
  part.places = std::make_shared<const std::vector<int64_t>>(std::move(samples));
  return part;
}

Dataset evenly_spaced_samples(Dataset data, int64_t limit) {
  if (limit <= 0 || limit >= data.size) {
    return data;
  }
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < limit; ++i) {
    // Equals data.size * i / limit, whose product may overflow.
    samples.push_back(data.size / limit * i + data.size % limit * i / limit);
  }
  return samples_at(data, std::move(samples));
}

Dataset hold_out(
    Dataset& whole, double fraction, uint64_t seed, const std::string& setting) {
  const auto count =
      static_cast<int64_t>(std::lround(fraction * static_cast<double>(whole.size)));
  if (count < 1 || count >= whole.size) {
    throw ConfigError(fmt::format(
        "[data] {} is {}, which is {} of the {} samples of '{}', expected some but not "
        "all samples; change {}, or use more data",
        setting, fraction, count, whole.size, whole.name,
        find_field(setting, setting).flag()));
  }
  if (whole.is_sequence) {
    return end_of(whole, count);
  }
  const auto chosen = choose(whole.size, count, seed);
  const auto rest = others(whole.size, chosen);
  Dataset part = samples_at(whole, chosen);
  whole = samples_at(whole, rest);
  return part;
}

}  // namespace tandem

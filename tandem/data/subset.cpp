#include "tandem/data/subset.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

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

}  // namespace tandem

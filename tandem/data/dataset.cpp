#include "tandem/data/dataset.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"

namespace tandem {

namespace {

// Returns the SHA-256 of the size and of blocks at equal distances, which include the
// first and the last block.
std::string hash_of_blocks(const uint8_t* bytes, size_t size) {
  constexpr size_t kBlocks = 1'024;
  constexpr size_t kBlockBytes = 4'096;
  if (size <= kBlocks * kBlockBytes) {
    return sha256_hex(bytes, size);
  }
  std::string chosen = std::to_string(size) + "\n";
  for (size_t i = 0; i < kBlocks; ++i) {
    // In this order, because the product of size and i may overflow.
    const size_t last = size - kBlockBytes;
    const size_t at =
        last / (kBlocks - 1) * i + last % (kBlocks - 1) * i / (kBlocks - 1);
    chosen.append(reinterpret_cast<const char*>(bytes + at), kBlockBytes);
  }
  return sha256_hex(chosen.data(), chosen.size());
}

// Returns the SHA-256 of the first `count` samples: a limit lowers Dataset::size, but
// the bytes of all samples remain.
std::string hash_of(const Samples& samples, int64_t count) {
  const auto size = static_cast<size_t>(samples.bytes_of(count));
  return samples.is_mapped ? hash_of_blocks(samples.bytes.data(), size)
                           : sha256_hex(samples.bytes.data(), size);
}

void check_bytes(
    const Dataset& data, const char* what, const Samples& samples, int64_t held) {
  const auto wanted = static_cast<size_t>(samples.bytes_of(held));
  if (samples.bytes.size() < wanted) {
    throw ConfigError(fmt::format(
        "[data] {} of '{}' have {} bytes, expected {} for {} samples; change "
        "Dataset::size or {}",
        what, data.name, samples.bytes.size(), wanted, held, what));
  }
}

// Throws ConfigError if a target of the sample number `i` of this share is not a class.
void check_classes(
    const Dataset& data, int64_t i, int64_t num_classes,
    std::optional<int64_t> ignored) {
  const Samples& targets = data.targets;
  const int64_t first = data.place_of(i + data.first_held) * targets.numel();
  for (int64_t at = first; at < first + targets.numel(); ++at) {
    const int64_t label = targets.integer(at);
    if ((label < 0 || label >= num_classes) && label != ignored) {
      throw ConfigError(fmt::format(
          "[data] label {} of '{}' is {}, expected less than {}, the number of "
          "classes; "
          "change the label or Dataset::num_classes",
          i, data.name, label, num_classes));
    }
  }
}

void check_values(const Dataset& data, int64_t i) {
  const int64_t sample = i + data.first_held;
  const int64_t numel = data.targets.numel();
  const auto* values =
      reinterpret_cast<const float*>(data.targets.at(data.place_of(sample)));
  if (!std::all_of(values, values + numel, [](float x) { return std::isfinite(x); })) {
    throw DataError(fmt::format(
        "[data] sample {} of '{}' has a target that is not finite, expected finite "
        "numbers; remove the sample or replace the number",
        sample, data.name));
  }
}

}  // namespace

Dataset first_samples(Dataset data, int64_t limit) {
  if (limit > 0 && limit < data.size) {
    TANDEM_CHECK(data.num_shares == 1, "a limit comes before samples are shared");
    data.size = limit;
    data.hashes = {};
  }
  return data;
}

DataHashes hashes_of(const Dataset& data) {
  if (!data.hashes.inputs.empty()) {
    return data.hashes;
  }
  TANDEM_CHECK(data.num_shares == 1, "a share does not have the hash of the whole");
  return {hash_of(data.inputs, data.size), hash_of(data.targets, data.size)};
}

void check_samples(
    const Dataset& data, int64_t num_classes, std::optional<int64_t> ignored) {
  const int64_t held = data.places ? static_cast<int64_t>(data.places->size())
                                   : data.size / data.num_shares;
  const int64_t end =
      data.places && held > 0
          ? 1 + *std::max_element(data.places->begin(), data.places->end())
          : held;
  check_bytes(data, "inputs", data.inputs, end);
  check_bytes(data, "targets", data.targets, end);
  const bool fit = data.targets.type == ElementType::uint8 && num_classes > 255;
  for (int64_t i = 0; i < held && !fit; ++i) {
    if (data.has_classes()) {
      check_classes(data, i, num_classes, ignored);
    } else {
      check_values(data, i);
    }
  }
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return shape.empty() ? "number" : fmt::format("{}", fmt::join(shape, "x"));
}

}  // namespace tandem

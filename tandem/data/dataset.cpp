#include "tandem/data/dataset.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/mapped_file.h"
#include "tandem/base/sha256.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

// Calls `action(data, size)` for the bytes from `begin` to `end` - 1 of the inputs or
// targets of a data set, in order of the samples.
template <typename Action>
void for_bytes(
    const Dataset& data, const Samples& samples, size_t begin, size_t end,
    const Action& action) {
  if (!data.places) {
    action(samples.bytes.data() + begin, end - begin);
    return;
  }
  const auto width = static_cast<size_t>(samples.sample_bytes());
  while (begin < end) {
    const size_t within = begin % width;
    const size_t count = std::min(width - within, end - begin);
    const auto sample = static_cast<int64_t>(begin / width);
    action(samples.at(data.place_of(sample)) + within, count);
    begin += count;
  }
}

// Returns the hash of the first Dataset::size samples: a limit lowers the size, but the
// bytes of all samples remain. Blocks include the first and the last byte.
std::string hash_of(const Dataset& data, const Samples& samples) {
  constexpr size_t kBlocks = 1'024;
  constexpr size_t kBlockBytes = 4'096;
  const auto size = static_cast<size_t>(samples.bytes_of(data.size));
  Sha256 hash;
  const auto update = [&](const uint8_t* from, size_t count) {
    hash.update(from, count);
  };
  if (!samples.is_mapped || size <= kBlocks * kBlockBytes) {
    for_bytes(data, samples, 0, size, update);
    return hash.hex_digest();
  }
  const auto for_blocks = [&](const auto& action) {
    const size_t last = size - kBlockBytes;
    for (size_t i = 0; i < kBlocks; ++i) {
      // Divides before it multiplies, because the product of size and i may overflow.
      const size_t at =
          last / (kBlocks - 1) * i + last % (kBlocks - 1) * i / (kBlocks - 1);
      for_bytes(data, samples, at, at + kBlockBytes, action);
    }
  };
  const std::string text = std::to_string(size) + "\n";
  hash.update(text.data(), text.size());
  for_blocks(read_ahead);
  for_blocks(update);
  return hash.hex_digest();
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
          "classes; change the label or Dataset::num_classes",
          i, data.name, label, num_classes));
    }
  }
}

// Checks texts that checkpoints will contain.
void check_texts(const Dataset& data) {
  const auto check = [&](const std::string& what, const std::string& text) {
    if (const auto byte = describe_invalid_utf8(text)) {
      throw ConfigError(fmt::format(
          "[data] {} of '{}' is '{}', with {}, expected UTF-8; convert the text to "
          "UTF-8",
          what, with_escapes(data.name), with_escapes(text), *byte));
    }
  };
  check("the name", data.name);
  for (size_t i = 0; i < data.class_names.size(); ++i) {
    const std::string what = fmt::format("name {} of class_names", i);
    check(what, data.class_names[i]);
    // Checkpoints have a line for each name.
    if (data.class_names[i].find('\n') != std::string::npos) {
      throw ConfigError(fmt::format(
          "[data] {} of '{}' is '{}', expected a name without line breaks; rename the "
          "class",
          what, with_escapes(data.name), with_escapes(data.class_names[i])));
    }
  }
}

// Returns the number of samples that this process has in memory.
int64_t num_held(const Dataset& data) {
  return data.places ? static_cast<int64_t>(data.places->size())
                     : data.size / data.num_shares;
}

// Returns the numbers of the target of sample `i` in memory.
const float* values_of(const Dataset& data, int64_t i) {
  return reinterpret_cast<const float*>(
      data.targets.at(data.place_of(i + data.first_held)));
}

void check_values(const Dataset& data, int64_t i) {
  const int64_t sample = i + data.first_held;
  const int64_t numel = data.targets.numel();
  const auto* values = values_of(data, i);
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
  return {hash_of(data, data.inputs), hash_of(data, data.targets)};
}

void check_samples(
    const Dataset& data, int64_t num_classes, std::optional<int64_t> ignored) {
  check_texts(data);
  const int64_t held = num_held(data);
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

void check_probabilities(const Dataset& data) {
  const int64_t numel = data.targets.numel();
  for (int64_t i = 0; i < num_held(data) && !data.has_classes(); ++i) {
    const float* values = values_of(data, i);
    const auto* wrong = std::find_if(
        values, values + numel, [](float x) { return !(x >= 0 && x <= 1); });
    if (wrong != values + numel) {
      throw DataError(fmt::format(
          "[data] a target of sample {} of '{}' is {}, expected 0 to 1 for loss bce; "
          "change the target, or --loss",
          i + data.first_held, data.name, *wrong));
    }
  }
}

void fail_not_finite(const Dataset& data, int64_t sample) {
  throw DataError(fmt::format(
      "[data] sample {} of '{}' has an input that is not finite, expected finite "
      "numbers; remove the sample or replace the number",
      sample, data.name));
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return shape.empty() ? "number" : fmt::format("{}", fmt::join(shape, "x"));
}

void renumber_classes(
    Dataset& data, const std::vector<std::string>& names, const std::string& owner) {
  if (!data.has_classes() || data.class_names.empty() || data.class_names == names) {
    return;
  }
  std::vector<int64_t> numbers;
  for (const auto& name : data.class_names) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      throw DataError(fmt::format(
          "[data] '{}' has the class '{}', expected a class of {}{}; rename or remove "
          "this class",
          data.name, name, owner, did_you_mean(name, names)));
    }
    numbers.push_back(found - names.begin());
  }
  const auto count =
      static_cast<int64_t>(data.targets.bytes.size() / size_of(data.targets.type));
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    labels.push_back(numbers[static_cast<size_t>(data.targets.integer(i))]);
  }
  data.targets.bytes = std::move(labels);
  data.targets.type = ElementType::int64;
  data.class_names = names;
}

}  // namespace tandem

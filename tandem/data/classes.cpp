#include "tandem/data/classes.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

int64_t largest_class(const Dataset& data, int64_t ignored) {
  const int64_t numel = data.targets.numel();
  int64_t largest = 0;
  for (int64_t i = 0; i < data.size; ++i) {
    const int64_t first = data.place_of(i) * numel;
    for (int64_t at = first; at < first + numel; ++at) {
      const int64_t label = data.targets.integer(at);
      if (label < 0 && label != ignored) {
        throw DataError(fmt::format(
            "[data] '{}': the target of sample {} is {}, expected classes from 0 on; "
            "change the target, or set --ignore-index",
            data.name, i, label));
      }
      if (label != ignored) {
        largest = std::max(largest, label);
      }
    }
  }
  return largest;
}

void check_largest_class(
    const char* name, const Dataset& part, const Dataset& train, int64_t ignored) {
  const int64_t largest = largest_class(part, ignored);
  if (largest >= train.num_classes) {
    throw DataError(fmt::format(
        "[data] '{}': a {} label is {}, expected at most {} as in the training "
        "labels; check the label files",
        train.name, name, largest, train.num_classes - 1));
  }
}

// Returns whether targets are one class for each position, as in token arrays. The
// number of a text's classes is known.
bool has_class_per_position(const Dataset& train) {
  return train.has_classes() && !train.targets.shape.empty() && !train.tokens;
}

}  // namespace

void convert_to_values(Dataset& data) {
  Samples& targets = data.targets;
  if (targets.type == ElementType::float32 || targets.bytes.empty()) {
    return;
  }
  const auto is_number = [](const std::string& name) {
    return parse_number<double>(name).has_value();
  };
  const auto& names = data.class_names;
  if (!std::all_of(names.begin(), names.end(), is_number)) {
    throw ConfigError(fmt::format(
        "[config] the loss needs targets that are numbers, but the targets of '{}' are "
        "the classes {}; use --loss auto",
        data.name, join(names)));
  }
  const auto count = targets.bytes.size() / size_of(targets.type);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(targets.integer(static_cast<int64_t>(i)));
  }
  targets.bytes = std::move(values);
  targets.type = ElementType::float32;
  targets.is_mapped = false;
  if (targets.shape.empty()) {
    targets.shape = {1};
  }
}

void count_classes(DatasetSplits& splits, int64_t ignored) {
  Dataset& train = splits.train;
  if (!train.has_classes()) {
    train.num_classes = train.targets.numel();
  } else if (has_class_per_position(train)) {
    for (const auto* part : {&splits.train, &splits.validation, &splits.test}) {
      train.num_classes =
          std::max(train.num_classes, largest_class(*part, ignored) + 1);
    }
  } else if (!train.tokens) {
    train.num_classes = std::max(
        largest_class(train, ignored) + 1,
        static_cast<int64_t>(train.class_names.size()));
  }
  for (const auto& [name, part] :
       {std::pair("validation", &splits.validation), {"test", &splits.test}}) {
    part->num_classes = train.num_classes;
    // The training part may lack a class of a position, such as a byte or a token.
    if (train.has_classes() && train.targets.shape.empty()) {
      check_largest_class(name, *part, train, ignored);
    }
  }
}

}  // namespace tandem

#include "tandem/data/class_names.h"

#include <fmt/core.h>

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem {

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

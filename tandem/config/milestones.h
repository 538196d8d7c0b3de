#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

/// Parses the setting `milestones`, such as "30,60,80". Throws ConfigError unless the
/// text has at least one number, and the numbers are whole, at least 1 and in ascending
/// order.
inline std::vector<int64_t> parse_milestones(const std::string& text) {
  const auto epochs = parse_sizes(text, ',');
  const bool valid =
      epochs && !epochs->empty() &&
      std::adjacent_find(epochs->begin(), epochs->end(), std::greater_equal<>()) ==
          epochs->end();
  if (!valid) {
    throw ConfigError(
        "[config] milestones is '" + text +
        "', expected numbers of epochs in ascending order, such as '30,60,80'; change "
        "--milestones");
  }
  return *epochs;
}

}  // namespace tandem

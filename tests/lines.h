#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "tandem/base/text.h"

namespace tandem {

/// Returns the lines of an output in sorted order, because ranks print in any order.
inline std::vector<std::string> sorted_lines(const std::string& text) {
  auto lines = split(text, '\n');
  std::sort(lines.begin(), lines.end());
  return lines;
}

/// Returns the lines that contain `mark`.
inline std::vector<std::string> lines_with(
    const std::string& text, const std::string& mark) {
  const auto lines = split(text, '\n');
  std::vector<std::string> found;
  std::copy_if(
      lines.begin(), lines.end(), std::back_inserter(found),
      [&](const auto& line) { return line.find(mark) != std::string::npos; });
  return found;
}

}  // namespace tandem

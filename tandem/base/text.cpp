#include "tandem/base/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

namespace tandem {

std::optional<bool> parse_bool(const std::string& text) {
  const std::string word = lower_case(text);
  constexpr std::string_view kYes[] = {"true", "1", "t", "yes", "y", "on"};
  constexpr std::string_view kNo[] = {"false", "0", "f", "no", "n", "off"};
  if (std::find(std::begin(kYes), std::end(kYes), word) != std::end(kYes)) {
    return true;
  }
  if (std::find(std::begin(kNo), std::end(kNo), word) != std::end(kNo)) {
    return false;
  }
  return std::nullopt;
}

std::string float_text(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

}  // namespace tandem

#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace tandem {

/// The number that all of `text` spells, for instance "12" or "1e-3"; nullopt for any
/// other text, a number that does not fit, NaN and infinity. A leading '+' is allowed.
template <typename Number>
std::optional<Number> parse_number(const std::string& text) {
  const char* first = text.c_str();
  const char* const last = first + text.size();
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') {
    ++first;
  }
  Number number{};
  const auto [end, error] = std::from_chars(first, last, number);
  if (error != std::errc() || end != last) {
    return std::nullopt;
  }
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(number)) {
      return std::nullopt;
    }
  }
  return number;
}

/// The parts of "a,b,c"; none of "".
inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

}  // namespace tandem

#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <system_error>

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

}  // namespace tandem

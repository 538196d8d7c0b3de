#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace tandem {

/// Parses a number such as "12" or "1e-3"; a leading '+' is allowed. Returns nullopt
/// for any other text, a number that does not fit, NaN and infinity.
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

/// Returns whether `text` ends with `end`.
inline bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// Returns a text with lower-case letters instead of A to Z.
inline std::string lower_case(std::string text) {
  for (char& letter : text) {
    letter =
        letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  return text;
}

/// Splits a text such as "a,b,c" at a separator. Returns an empty list for "".
inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

/// Parses words such as "true", "1", "Yes" and "OFF". Returns nullopt for other words.
[[nodiscard]] std::optional<bool> parse_bool(const std::string& text);

/// Parses sizes such as "1,28,28". Returns an empty list for "", and nullopt if a part
/// is not a whole number of 1 or more.
inline std::optional<std::vector<int64_t>> parse_sizes(
    const std::string& text, char separator) {
  std::vector<int64_t> sizes;
  for (const auto& part : split(text, separator)) {
    const auto size = parse_number<int64_t>(part);
    if (!size || *size < 1) {
      return std::nullopt;
    }
    sizes.push_back(*size);
  }
  return sizes;
}

/// Returns a number with a noun: "1 rank", "3 ranks". `many` is the plural; "" stands
/// for the noun with an "s".
inline std::string counted(
    int64_t number, const std::string& noun, const std::string& many = "") {
  const std::string plural = many.empty() ? noun + "s" : many;
  return std::to_string(number) + " " + (number == 1 ? noun : plural);
}

/// Returns a noun with numbers, which must be in ascending order: "rank 2", "ranks 1
/// and 3", "ranks 0 to 5, 7 and 9".
inline std::string with_numbers(
    const std::string& noun, const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (size_t first = 0, last = 0; first < numbers.size(); first = last + 1) {
    last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    parts.push_back(std::to_string(numbers[first]));
    if (last > first + 1) {
      parts.back() += " to " + std::to_string(numbers[last]);
    } else if (last > first) {
      parts.push_back(std::to_string(numbers[last]));
    }
  }
  std::string text = noun + (numbers.size() > 1 ? "s " : " ");
  for (size_t i = 0; i < parts.size(); ++i) {
    const char* before = i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ";
    text += before + parts[i];
  }
  return text;
}

/// Returns the position of the first byte of a text that is not UTF-8 (RFC 3629), or
/// nullopt if the whole text is UTF-8.
[[nodiscard]] std::optional<size_t> find_invalid_utf8(std::string_view text);

/// Returns "the byte fc at position 3" for the first byte of a text that is not UTF-8,
/// with positions from 1, or nullopt if the whole text is UTF-8.
[[nodiscard]] std::optional<std::string> describe_invalid_utf8(std::string_view text);

/// Returns a text in which "\xfc" replaces a byte fc that is not UTF-8 or is part of a
/// control character, because a terminal would execute control characters.
[[nodiscard]] std::string with_escapes(std::string_view text);

/// Returns the shortest text that is parsed as the same number. The text contains a
/// point or an exponent, as TOML requires and as Python's repr() writes it.
std::string float_text(double value);

}  // namespace tandem

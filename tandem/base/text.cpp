#include "tandem/base/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace tandem {

namespace {

// Returns the number of bytes at the start of a text that are ASCII, rounded down to a
// multiple of 8. Large tables are mostly ASCII.
size_t ascii_length(std::string_view text) {
  constexpr uint64_t kNotAscii = 0x8080'8080'8080'8080;
  size_t length = 0;
  uint64_t word = 0;
  for (; length + sizeof(word) <= text.size(); length += sizeof(word)) {
    std::memcpy(&word, text.data() + length, sizeof(word));
    if ((word & kNotAscii) != 0) {
      break;
    }
  }
  return length;
}

// Returns the number of bytes of the UTF-8 character at the start of a text, 0 if the
// bytes are not UTF-8.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
  };
  const int first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  if (first < 0xc2 || first > 0xf4) {
    return 0;
  }
  // The second byte excludes overlong forms, surrogates, and numbers above 10ffff.
  const int least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const int most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < least || byte(1) > most) {
    return 0;
  }
  const size_t length = first >= 0xf0 ? 4 : (first >= 0xe0 ? 3 : 2);
  for (size_t at = 2; at < length; ++at) {
    if ((byte(at) & 0xc0) != 0x80) {
      return 0;
    }
  }
  return length;
}

// Returns whether a UTF-8 character is a control character.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  return first < 0x20 || first == 0x7f ||
         (first == 0xc2 && static_cast<unsigned char>(character.back()) < 0xa0);
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  size_t at = ascii_length(text);
  while (at < text.size()) {
    const size_t length = utf8_length(text.substr(at));
    if (length == 0) {
      return at;
    }
    at += length;
    at += ascii_length(text.substr(at));
  }
  return std::nullopt;
}

std::optional<std::string> describe_invalid_utf8(std::string_view text) {
  const auto at = find_invalid_utf8(text);
  return at ? std::optional<std::string>(fmt::format(
                  "the byte {:02x} at position {}",
                  static_cast<unsigned char>(text[*at]), *at + 1))
            : std::nullopt;
}

std::string with_escapes(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto character = text.substr(0, std::max<size_t>(length, 1));
    if (length == 0 || is_control(character)) {
      for (const char byte : character) {
        result += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
      }
    } else {
      result += character;
    }
    text.remove_prefix(character.size());
  }
  return result;
}

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

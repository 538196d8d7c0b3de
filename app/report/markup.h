#pragma once

#include <string>

namespace tandem::app {

/// A text as HTML and SVG want it, inside an element or an attribute in double quotes.
inline std::string html_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '<'   ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '&' ? "&amp;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  }
  return out;
}

/// A text of at most about so many bytes, with "…" where it was cut.
inline std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) {
    return text;
  }
  size_t end = most;
  // Not in the middle of a character.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
    --end;
  }
  return text.substr(0, end) + "…";
}

}  // namespace tandem::app

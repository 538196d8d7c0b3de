#pragma once

#include <string>

namespace tandem::app {

/// Escapes text for the content or an attribute of an HTML element.
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

}  // namespace tandem::app

#pragma once

#include <string>

namespace tandem::app {

/// Escapes text for the content or an attribute of an HTML element. '?' replaces
/// control characters except line breaks and tabs.
inline std::string html_text(const std::string& text) {
  const auto is_control = [](char c) {
    return (c >= 0 && c < ' ' && c != '\n' && c != '\t') || c == '\x7f';
  };
  std::string out;
  for (const char c : text) {
    out += c == '<'   ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '&' ? "&amp;"
           : c == '"' ? "&quot;"
                      : std::string(1, is_control(c) ? '?' : c);
  }
  return out;
}

}  // namespace tandem::app

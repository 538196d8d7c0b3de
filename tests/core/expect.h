#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <initializer_list>
#include <string>
#include <typeinfo>

namespace tandem {

/// Returns the message of the `Expected` error that `action` throws. If `action` throws
/// another error or none, returns a text that no test expects.
template <typename Expected, typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("(another error) ") + typeid(error).name();
  }
  return "(no error)";
}

/// Expects that `text` contains each of `parts`. Reports a failure of the calling line.
inline void expect_parts(
    const std::string& text, std::initializer_list<std::string> parts,
    const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  for (const auto& part : parts) {
    if (text.find(part) == std::string::npos) {
      ADD_FAILURE_AT(file, line) << "expected '" << part << "' in: " << text;
    }
  }
}

/// Expects that `action` throws an `Expected` error whose message contains each of
/// `parts`.
template <typename Expected, typename Action>
void expect_error(
    Action&& action, std::initializer_list<std::string> parts,
    const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  expect_parts(error_of<Expected>(action), parts, file, line);
}

}  // namespace tandem

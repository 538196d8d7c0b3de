#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>

#include "tandem/base/process.h"
#include "tests/core/expect.h"

namespace tandem {

/// Returns the result of a command that succeeded. If the command failed, reports its
/// output as a failure of the calling line, and ends the test as ASSERT_TRUE does. Call
/// it in the main thread only.
inline CommandResult checked(
    CommandResult result, const char* file = __builtin_FILE(),
    int line = __builtin_LINE()) {
  if (!result.status.ok()) {
    const auto text = result.output + result.errors;
    [&] { GTEST_FAIL_AT(file, line) << text; }();
    // GoogleTest does not report this exception again.
    throw testing::AssertionException(testing::TestPartResult(
        testing::TestPartResult::kFatalFailure, file, line, text.c_str()));
  }
  return result;
}

/// Expects that a command exited with `code`, and that its standard error contains each
/// of `parts`.
inline void expect_exit(
    const CommandResult& result, int code, std::initializer_list<std::string> parts,
    const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (result.status.code != code) {
    ADD_FAILURE_AT(file, line) << result.status.describe() << ", expected code " << code
                               << ": " << result.errors;
  }
  expect_parts(result.errors, parts, file, line);
}

/// As expect_exit(). Also expects that standard error is one line.
inline void expect_error_line(
    const CommandResult& result, int code, std::initializer_list<std::string> parts,
    const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  expect_exit(result, code, parts, file, line);
  if (std::count(result.errors.begin(), result.errors.end(), '\n') != 1) {
    ADD_FAILURE_AT(file, line) << "expected one line: " << result.errors;
  }
}

}  // namespace tandem

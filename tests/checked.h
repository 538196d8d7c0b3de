#pragma once

#include <gtest/gtest.h>

#include "tandem/base/process.h"

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

}  // namespace tandem

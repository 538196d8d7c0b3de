#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "app/command.h"
#include "tandem/base/error.h"

namespace tandem::app {

/// Arguments that a command rejects, and the expected error.
struct Refusal {
  Arguments arguments;
  // Texts that the error line must contain.
  std::vector<std::string> says;
  // Exit code of the program.
  int code = 2;
};

/// Expects that `parse` throws the expected error for the arguments of each refusal.
template <typename Parse>
void expect_refused(const std::vector<Refusal>& refusals, Parse parse) {
  for (const auto& [arguments, says, code] : refusals) {
    SCOPED_TRACE(join(arguments, " "));
    try {
      parse(arguments);
      ADD_FAILURE() << "no error";
    } catch (const std::exception& error) {
      EXPECT_EQ(exit_code(error), code) << error.what();
      for (const auto& text : says) {
        EXPECT_THAT(first_line(error), testing::HasSubstr(text));
      }
    }
  }
}

}  // namespace tandem::app

#include "tandem/launch/failure_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/base/test_tools.h"

namespace tandem::error_file_test {

using ::testing::HasSubstr;
using ::testing::Optional;

class ErrorFile : public ::testing::Test {
 protected:
  std::optional<std::string> message_of_text(const std::string& text) const {
    replace_file(path_, text);
    return message_in_error_file(path_);
  }
  std::string written(
      const ExitStatus& status, int64_t time, const std::string& message = "") const {
    Supervisor::Ending ending;
    ending.pid = 4321;
    ending.status = status;
    ending.time = std::chrono::system_clock::from_time_t(time);
    write_error_file(path_, ending, message);
    return read_file(path_);
  }

  const Scratch scratch_;
  const std::string path_ = scratch_ / "error.json";
};

TEST_F(ErrorFile, HasTheFirstLineOfTheMessage) {
  EXPECT_THAT(
      message_of_text(R"({"message": {"message": "ValueError: a\nb", "extraInfo":
                      {"py_callstack": "Traceback", "timestamp": "1700000000"}}})"),
      Optional(std::string("ValueError: a")));
  EXPECT_THAT(message_of_text(R"({"message": "old"})"), Optional(std::string("old")));
  EXPECT_THAT(
      message_of_text("{\"message\": \"\\u001b[31m\"}"),
      Optional(std::string("?[31m")));
}

TEST_F(ErrorFile, IsIgnoredInAnotherForm) {
  EXPECT_EQ(message_in_error_file(scratch_ / "none"), std::nullopt);
  EXPECT_EQ(message_in_error_file(scratch_.path()), std::nullopt);
  for (const char* text :
       {"", "{", "[]", "7", "{}", R"({"message": 7})", R"({"message": {}})",
        R"({"message": {"message": {"message": "x"}}})", "{\"message\": \"\xff\"}"}) {
    EXPECT_EQ(message_of_text(text), std::nullopt) << text;
  }
}

TEST_F(ErrorFile, DescribesASignalAsTorchrunDoes) {
  const auto text = written({0, SIGSEGV}, 1'700'000'000);
  expect_parts(text, {R"("timestamp":"1700000000")", R"("errorCode":-11)"});
  EXPECT_THAT(
      message_in_error_file(path_),
      Optional(std::string("Signal 11 (SIGSEGV) received by PID 4321")));
}

TEST_F(ErrorFile, HasTheExitCodeOrTheErrorOfTheRank) {
  EXPECT_THAT(written({3, 0}, 0), HasSubstr(R"("errorCode":3)"));
  EXPECT_THAT(
      message_in_error_file(path_),
      Optional(std::string("PID 4321 exited with code 3")));
  written({1, 0}, 0, "[data] bad \xff");
  EXPECT_THAT(message_in_error_file(path_), Optional(HasSubstr("[data] bad ")));
}

}  // namespace tandem::error_file_test

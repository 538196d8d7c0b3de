#include "tandem/launch/logs/log_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/test_tools.h"

namespace tandem::log_directory_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

class LogDirectoryTest : public ::testing::Test {
 protected:
  LogDirectoryTest() {
    setenv("TMPDIR", temporary_.path().c_str(), 1);
    options_.directory = scratch_ / "a/b";
  }
  ~LogDirectoryTest() override {
    unsetenv("TMPDIR");
  }
  std::vector<std::string> temporaries() const {
    return list_directory(temporary_.path());
  }

  const Scratch scratch_;
  const Scratch temporary_;
  LogOptions options_;
};

TEST_F(LogDirectoryTest, HasAFolderForEachRunAttemptAndRank) {
  LogDirectory logs(options_, "job/7");
  logs.begin_attempt(0, 3);
  EXPECT_THAT(
      logs.error_file(2),
      MatchesRegex(scratch_.path() + "/a/b/job_7_[^/]+/attempt_0/2/error.json"));
  logs.begin_attempt(1, 1);
  EXPECT_THAT(logs.error_file(0), MatchesRegex(".*/attempt_1/0/error.json"));
  const std::string run = parent_of(parent_of(parent_of(logs.error_file(0))));
  EXPECT_THAT(list_directory(run), ElementsAre("attempt_0", "attempt_1"));
  EXPECT_THAT(list_directory(run + "/attempt_0"), ElementsAre("0", "1", "2"));
  LogDirectory(options_, "job/7").begin_attempt(0, 1);
  LogDirectory(options_, "").begin_attempt(0, 1);
  EXPECT_EQ(list_directory(options_.directory).size(), 3u);
}

TEST_F(LogDirectoryTest, NamesADirectoryThatCannotBeCreated) {
  replace_file(scratch_ / "file", "");
  options_.directory = scratch_ / "file/logs";
  expect_error<DataError>(
      [&] { LogDirectory(options_, ""); }, {options_.directory + "': Not a directory"});
}

TEST_F(LogDirectoryTest, ChoosesFilesAndConsoleForEachStream) {
  options_.redirected.of_others = {true, false};
  options_.teed.of_rank[1] = {true, true};
  options_.shown = {0, 1};
  LogDirectory logs(options_, "");
  logs.begin_attempt(0, 3);
  const auto places = [](const StreamOptions& stream) {
    return std::string(stream.on_console ? "console" : "") +
           (stream.file ? "+file" : "");
  };
  EXPECT_EQ(places(logs.output_of(0)), "+file");
  EXPECT_EQ(places(logs.errors_of(0)), "console");
  EXPECT_EQ(places(logs.output_of(1)), "console+file");
  EXPECT_EQ(places(logs.errors_of(1)), "console+file");
  EXPECT_EQ(places(logs.output_of(2)), "+file");
  EXPECT_EQ(places(logs.errors_of(2)), "");
  EXPECT_THAT(
      list_directory(parent_of(logs.error_file(1))),
      ElementsAre("stderr.log", "stdout.log"));
}

TEST_F(LogDirectoryTest, FiltersOnlyTeedStreams) {
  options_.redirected.of_others = {true, true};
  options_.teed.of_rank[1] = {true, false};
  options_.output_filters = {"x"};
  LogDirectory logs(options_, "");
  logs.begin_attempt(0, 2);
  EXPECT_FALSE(logs.output_of(0).filtered);
  EXPECT_TRUE(logs.output_of(1).filtered);
  EXPECT_FALSE(logs.errors_of(1).filtered);
}

TEST_F(LogDirectoryTest, RemovesATemporaryDirectoryUnlessItIsKept) {
  options_.directory = "";
  {
    LogDirectory logs(options_, "");
    logs.begin_attempt(0, 4);
    EXPECT_EQ(temporaries().size(), 1u);
  }
  EXPECT_THAT(temporaries(), IsEmpty());
  LogDirectory(options_, "").keep();
  EXPECT_EQ(temporaries().size(), 1u);
  options_.teed.of_rank[3] = {false, true};
  { const LogDirectory logs(options_, ""); }
  EXPECT_EQ(temporaries().size(), 2u);
}

}  // namespace tandem::log_directory_test

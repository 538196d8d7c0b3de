#include "tandem/launch/logs/stream_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/base/output.h"
#include "tests/base/stalled_pipe.h"
#include "tests/base/test_tools.h"

namespace tandem::stream_sink_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StreamSinkTest : public ::testing::Test {
 protected:
  static void add(StreamSink& sink, const std::string& text) {
    sink.add(text.data(), text.size());
  }
  std::string on_console() {
    console_.write();
    return pipe_.read();
  }

  const Scratch scratch_;
  const StalledPipe pipe_;
  OutputQueue console_{pipe_.write_end()};
};

TEST_F(StreamSinkTest, ForwardsLinesWithThePrefixAndWritesTheBytesToTheFile) {
  StreamOptions options;
  options.prefix = "[rank 2] ";
  options.file = std::make_shared<LogFile>(scratch_ / "log");
  StreamSink sink(console_, options);
  add(sink, "a\nb");
  EXPECT_EQ(on_console(), "[rank 2] a\n");
  EXPECT_EQ(read_file(scratch_ / "log"), "a\nb");
  sink.finish();
  EXPECT_EQ(on_console(), "[rank 2] b\n");
  EXPECT_EQ(read_file(scratch_ / "log"), "a\nb");
  EXPECT_THAT(sink.last_hidden_lines(9), IsEmpty());
}

TEST_F(StreamSinkTest, KeepsTheLastLinesThatAreNotOnTheConsole) {
  StreamOptions options;
  options.on_console = false;
  StreamSink sink(console_, options);
  for (int i = 0; i < 50'000; ++i) {
    add(sink, "line " + std::to_string(i) + "\n");
  }
  add(sink, "end");
  sink.finish();
  EXPECT_TRUE(console_.empty());
  EXPECT_FALSE(sink.full());
  EXPECT_THAT(
      sink.last_hidden_lines(3), ElementsAre("line 49998", "line 49999", "end"));
  EXPECT_GT(sink.last_hidden_lines(100'000).size(), 1000u);
}

TEST_F(StreamSinkTest, FindsTheLastErrorOfTheStream) {
  StreamSink sink(console_, {});
  EXPECT_EQ(sink.last_error(), "");
  add(sink, "tandem: error: one\nterminate called\n  what():  two\x1b\nthree\n");
  EXPECT_EQ(sink.last_error(), "two?");
  add(sink, "tandem: warning: error: 4\nwhat():  5\ntandem: [rank 12] error: six\nend");
  EXPECT_EQ(sink.last_error(), "six");
}

TEST_F(StreamSinkTest, CopiesLinesOfAllRanksThatMatchAFilter) {
  const auto filtered = std::shared_ptr<FilteredFile>(
      new FilteredFile{{"loss", "lr,"}, LogFile(scratch_ / "filtered")});
  const auto sink = [&](const std::string& prefix) {
    return StreamSink(console_, {prefix, true, nullptr, filtered});
  };
  auto first = sink("[0] ");
  auto second = sink("[1] ");
  add(first, "loss 1\nnone\nlr");
  add(second, "a loss\nlr\n");
  add(first, ", 2\nnone\n");
  EXPECT_EQ(read_file(scratch_ / "filtered"), "[0] loss 1\n[1] a loss\n[0] lr, 2\n");
}

TEST(LogFile, DropsTextOnAFullDisk) {
  LogFile file("/dev/full");
  testing::internal::CaptureStderr();
  file.add("abcd", 4);
  file.add("efgh", 4);
  expect_parts(
      testing::internal::GetCapturedStderr(), {"log file is missing", "/dev/full"});
}

TEST(LogFile, NeedsADirectory) {
  const Scratch scratch;
  EXPECT_THROW(LogFile(scratch / "no-directory/log"), DataError);
}

}  // namespace tandem::stream_sink_test

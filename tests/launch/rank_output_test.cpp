#include "tandem/launch/logs/rank_output.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/base/output.h"
#include "tests/base/stalled_pipe.h"

namespace tandem::rank_output_test {

std::string take(LineCutter& cutter, const std::string& text) {
  return cutter.take(text.data(), text.size());
}

TEST(LineCutter, HoldsALineUntilItsEnd) {
  LineCutter cutter("[1] ");
  EXPECT_EQ(take(cutter, "a"), "");
  EXPECT_EQ(take(cutter, "b\ncd\ne"), "[1] ab\n[1] cd\n");
  EXPECT_EQ(cutter.finish(), "[1] e\n");
  EXPECT_EQ(cutter.finish(), "");
}

TEST(LineCutter, PassesOnProgressWithoutANewline) {
  LineCutter cutter("[1] ");
  EXPECT_EQ(take(cutter, "10%\r"), "[1] 10%\r");
  EXPECT_EQ(take(cutter, "20%\r30"), "[1] 20%\r");
  EXPECT_EQ(take(cutter, "%\r"), "[1] 30%\r");
  EXPECT_EQ(take(cutter, "\n"), "\n");
  EXPECT_EQ(take(cutter, "done\n"), "[1] done\n");
}

TEST(LineCutter, TreatsReturnAndNewlineAsOneEnd) {
  LineCutter cutter("[1] ");
  EXPECT_EQ(take(cutter, "a\r\nb\r"), "[1] a\r\n[1] b\r");
  EXPECT_EQ(take(cutter, "\nc\r\n"), "\n[1] c\r\n");
  EXPECT_EQ(take(cutter, "\n"), "[1] \n");
}

TEST(LineCutter, SplitsALongLineIntoBoundedPieces) {
  LineCutter cutter("[1] ");
  std::string passed;
  const std::string block(10'000, 'x');
  for (int i = 0; i < 500; ++i) {
    passed += take(cutter, block);
  }
  EXPECT_GT(passed.size(), 3'900'000u);
  passed += cutter.finish();
  EXPECT_TRUE(passed == "[1] " + std::string(5'000'000, 'x') + "\n");
}

std::string line(int number) {
  std::string digits = std::to_string(number);
  return std::string(99 - digits.size(), '.') + digits + "\n";
}

std::string read_all(OutputQueue& queue, const StalledPipe& pipe) {
  std::string all;
  while (!queue.empty()) {
    queue.write();
    all += pipe.read();
  }
  return all;
}

TEST(OutputQueue, KeepsAllTextWithoutWaiting) {
  const StalledPipe pipe;
  OutputQueue queue(pipe.write_end());
  std::string expected;
  int lines = 0;
  for (; !queue.full() && lines < 20'000; ++lines) {
    queue.add(line(lines));
    expected += line(lines);
    queue.write();
  }
  EXPECT_GE(lines, 10'000);
  EXPECT_LE(lines, 13'000);
  EXPECT_TRUE(read_all(queue, pipe) == expected);
  EXPECT_FALSE(queue.full());
}

TEST(OutputQueue, DropsTheOldestLinesAndReportsTheirNumber) {
  const StalledPipe pipe;
  OutputQueue queue(pipe.write_end());
  queue.drop_from_now();
  for (int i = 0; i < 50'000; ++i) {
    queue.add(line(i));
    queue.write();
    EXPECT_FALSE(queue.full());
  }
  const std::string all = read_all(queue, pipe);
  EXPECT_EQ(all.substr(0, 200), line(0) + line(1));
  EXPECT_EQ(all.substr(all.size() - 200), line(49'998) + line(49'999));
  EXPECT_LT(all.size(), 1'300'000u);
  // There is one such line for each place where lines are missing.
  const std::string note = "tandem: ";
  size_t lines = static_cast<size_t>(std::count(all.begin(), all.end(), '\n'));
  int notes = 0;
  for (size_t at = 0; (at = all.find(note, at)) != all.npos; at += note.size()) {
    lines += std::stoul(all.substr(at + note.size())) - 1;
    ++notes;
  }
  EXPECT_EQ(lines, 50'000u);
  EXPECT_GE(notes, 1);
  EXPECT_LE(notes, 2);
}

TEST(OutputQueue, IsEmptiedWithoutAReader) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  close(ends[0]);
  const NoSigpipe quiet;
  OutputQueue queue(ends[1]);
  queue.add("lost\n");
  queue.write();
  EXPECT_TRUE(queue.empty());
  close(ends[1]);
}

}  // namespace tandem::rank_output_test

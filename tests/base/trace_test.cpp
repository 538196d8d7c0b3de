#include "tandem/core/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace tandem::trace_test {

using ::testing::HasSubstr;

TEST(Trace, WritesChromesFormat) {
  Trace trace;
  trace.add({"backward conv2", "compute", 100, 50, 0});
  trace.add({"bucket 1", "comm", 120, 0, 4096});
  EXPECT_EQ(
      trace.to_json(3),
      "[{\"name\":\"backward conv2\",\"cat\":\"compute\",\"ph\":\"X\",\"ts\":100,"
      "\"dur\":50,\"pid\":3,\"tid\":\"compute\",\"args\":{\"bytes\":0}},\n"
      "{\"name\":\"bucket 1\",\"cat\":\"comm\",\"ph\":\"i\",\"ts\":120,"
      "\"dur\":0,\"pid\":3,\"tid\":\"comm\",\"args\":{\"bytes\":4096}}]\n");
}

TEST(Trace, IsAnEmptyListAtFirst) {
  EXPECT_EQ(Trace().to_json(0), "[]\n");
}

TEST(Trace, EscapesNames) {
  Trace trace;
  trace.add({"say \"hi\" \\ \n", "a\"b", 0, 0, 0});
  EXPECT_THAT(
      trace.to_json(0), HasSubstr(R"("name":"say \"hi\" \\ \u000a","cat":"a\"b")"));
}

TEST(Trace, TimesStartAtItsConstruction) {
  Trace trace;
  const int64_t before = trace.now_us();
  trace.mark("comm", "bucket 2", 77);
  const int64_t after = trace.now_us();
  const auto events = trace.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, "bucket 2");
  EXPECT_EQ(events[0].category, "comm");
  EXPECT_EQ(events[0].bytes, 77);
  EXPECT_EQ(events[0].duration_us, 0);
  EXPECT_GE(before, 0);
  EXPECT_LE(before, events[0].at_us);
  EXPECT_LE(events[0].at_us, after);
}

TEST(Trace, RecordsEventsOfAllThreads) {
  Trace trace;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&trace] {
      for (int j = 0; j < 100; ++j) {
        trace.mark("comm", "x");
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(trace.events().size(), 400u);
}

}  // namespace tandem::trace_test

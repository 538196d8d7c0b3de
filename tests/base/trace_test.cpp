#include "tandem/core/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace tandem::trace_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> names_of(const std::vector<Trace::Span>& spans) {
  std::vector<std::string> names;
  for (const auto& span : spans) {
    names.push_back(span.name);
  }
  return names;
}

int64_t end_of(const Trace::Span& span) {
  return span.start_ns + span.duration_ns;
}

TEST(Trace, SpansLastAsLongAsTheirScopes) {
  Trace trace;
  const int64_t before = trace.now_ns();
  { const TraceSpan span(&trace, "launch", "launch bucket ", "2", 77); }
  const int64_t after = trace.now_ns();
  const auto spans = trace.compute_spans();
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].name, "launch bucket 2");
  EXPECT_EQ(spans[0].category, "launch");
  EXPECT_EQ(spans[0].bytes, 77);
  EXPECT_GE(before, 0);
  EXPECT_LE(before, spans[0].start_ns);
  EXPECT_GE(spans[0].duration_ns, 0);
  EXPECT_LE(end_of(spans[0]), after);
}

TEST(Trace, ASpanComesBeforeTheSpansThatItContains) {
  Trace trace;
  {
    const TraceSpan outer(&trace, "a", "outer");
    { const TraceSpan first(&trace, "a", "first"); }
    { const TraceSpan second(&trace, "a", "second"); }
  }
  const auto spans = trace.compute_spans();
  ASSERT_THAT(names_of(spans), ElementsAre("outer", "first", "second"));
  EXPECT_LE(end_of(spans[1]), spans[2].start_ns);
  EXPECT_LE(end_of(spans[2]), end_of(spans[0]));
}

TEST(Trace, EqualSpansAreInTheOrderOfTheirNesting) {
  Trace trace;
  trace.add({"inner", "a", 5, 3, 0});
  trace.add({"outer", "a", 5, 3, 0});
  trace.add({"outermost", "a", 5, 4, 0});
  EXPECT_THAT(
      names_of(trace.compute_spans()), ElementsAre("outermost", "outer", "inner"));
}

TEST(Trace, LapsFollowEachOtherWithoutGaps) {
  Trace trace;
  TraceLaps laps(&trace, "forward");
  laps.end("forward ", "conv1");
  laps.end("forward ", "fc1");
  const auto spans = trace.compute_spans();
  ASSERT_THAT(names_of(spans), ElementsAre("forward conv1", "forward fc1"));
  EXPECT_EQ(spans[1].category, "forward");
  EXPECT_EQ(end_of(spans[0]), spans[1].start_ns);
}

TEST(Trace, RecordsNothingIfItIsNull) {
  const TraceSection section(nullptr, "a", "b");
  const TraceSpan span(nullptr, "a", "b");
  TraceLaps laps(nullptr, "a");
  laps.end("b");
}

TEST(Trace, IsInASectionUntilTheOutermostSectionEnds) {
  Trace trace;
  EXPECT_FALSE(trace.in_section());
  {
    const TraceSection outer(&trace, "a", "outer");
    { const TraceSection inner(&trace, "a", "inner"); }
    EXPECT_TRUE(trace.in_section());
  }
  EXPECT_FALSE(trace.in_section());
  EXPECT_THAT(names_of(trace.compute_spans()), ElementsAre("outer", "inner"));
}

TEST(Trace, OperationsEndOnceAndInAnyThread) {
  Trace trace;
  const auto bucket = trace.start_operation("all_reduce", "bucket 0", 4096);
  const auto in_flight = trace.start_operation("send", "activations", 1);
  EXPECT_THAT(trace.operations(), IsEmpty());
  std::thread([&] { bucket->end(); }).join();
  const auto ended = trace.operations();
  bucket->end();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].name, "bucket 0");
  EXPECT_EQ(ended[0].category, "all_reduce");
  EXPECT_EQ(ended[0].bytes, 4096);
  EXPECT_GE(ended[0].duration_ns, 0);
  EXPECT_EQ(trace.operations()[0].duration_ns, ended[0].duration_ns);
}

}  // namespace tandem::trace_test

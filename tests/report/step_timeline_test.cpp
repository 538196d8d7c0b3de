// The timeline of a step in a report.

#include <gmock/gmock.h>

#include "some_runs.h"

namespace tandem::step_timeline_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class StepTimeline : public SomeRuns {
 protected:
  // Writes the trace of a rank. Step i lasts `step_ms[i]` milliseconds and consists of
  // a span and an operation that is named `operation` and the number of the step.
  void trace(
      const std::string& run, int rank, const std::vector<double>& step_ms,
      const std::string& operation = "bucket of ") const {
    auto events = json::array();
    double start = 0;
    for (size_t i = 0; i < step_ms.size(); ++i) {
      const double us = 1000 * step_ms[i];
      const auto number = std::to_string(i);
      events.push_back(
          event("ProfilerStep#" + number, "user_annotation", 0, start, us));
      events.push_back(event("forward of " + number, "forward", 0, start, us / 2));
      events.push_back(
          event(operation + number, "all_reduce", 1, start + us / 4, us / 2));
      start += us;
    }
    write(
        run + "/trace/rank-" + std::to_string(rank) + ".json",
        json{{"traceEvents", events}}.dump());
  }

  static json event(
      const std::string& name, const std::string& category, int row, double start,
      double duration) {
    return {
        {"name", name},
        {"cat", category},
        {"tid", row},
        {"ts", start},
        {"dur", duration}};
  }
};

TEST_F(StepTimeline, ShowsTheMedianStepOfEachRank) {
  add("one", {{1, 90}});
  // The first three steps do not count.
  trace("one", 0, {90, 80, 70, 10, 30, 20});
  trace("one", 1, {90, 80, 70, 10, 30, 40});
  EXPECT_THAT(
      report(), AllOf(
                    HasSubstr("Step 5 of one"), HasSubstr("forward of 5, 10 ms"),
                    HasSubstr("forward of 5, 20 ms"), HasSubstr("bucket of 5, 10 ms"),
                    HasSubstr(">rank 0</text>"), HasSubstr(">rank 1</text>"),
                    HasSubstr(">40 ms</text>"), Not(HasSubstr("forward of 4"))));
}

TEST_F(StepTimeline, PrefersTheBestRun) {
  add("first", {{5, 90}});
  add("best", {{1, 99}});
  trace("first", 0, {1, 2});
  trace("best", 0, {1, 2});
  EXPECT_THAT(report(), HasSubstr("Step 0 of best"));
}

TEST_F(StepTimeline, ShowsARunWithATraceIfTheBestRunHasNone) {
  add("first", {{5, 90}});
  add("best", {{1, 99}});
  trace("first", 0, {1});
  EXPECT_THAT(report(), HasSubstr("Step 0 of first"));
}

TEST_F(StepTimeline, EscapesNames) {
  add("one", {{1, 90}});
  trace("one", 0, {100}, "<b>\"");
  EXPECT_THAT(report(), AllOf(HasSubstr("&lt;b&gt;&quot;0"), Not(HasSubstr("<b>\"0"))));
}

TEST_F(StepTimeline, IsAbsentWithoutATrace) {
  add("one", {{1, 90}});
  EXPECT_THAT(report(), Not(HasSubstr("One step")));
}

TEST_F(StepTimeline, IgnoresATraceThatIsNotJson) {
  add("one", {{1, 90}});
  write("one/trace/rank-0.json", "{\"traceEvents\": [");
  EXPECT_THAT(report(), Not(HasSubstr("One step")));
}

}  // namespace tandem::step_timeline_test

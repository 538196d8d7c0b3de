// The series that a report gives to Chart.js, from curves that the tests choose.

#include "app/report/report_charts.h"

#include <gmock/gmock.h>

#include "some_runs.h"

namespace tandem::report_charts_test {

using testing::ElementsAre;
using testing::IsEmpty;

class ReportCharts : public SomeRuns {
 protected:
  json charts(const json& more = {}) const {
    auto made = table(more);
    const auto conclusions = app::add_conclusions(made, scratch_.path());
    return app::make_charts(made, conclusions);
  }

  // Returns null without such a chart.
  json chart(const std::string& id, const json& more = {}) const {
    for (const auto& one : charts(more)) {
      if (one["id"] == id) {
        return one;
      }
    }
    return nullptr;
  }
};

std::vector<std::string> texts_in(
    const nlohmann::ordered_json& list, const std::string& key) {
  std::vector<std::string> texts;
  for (const auto& one : list) {
    texts.push_back(one[key]);
  }
  return texts;
}

TEST_F(ReportCharts, EachRunIsALineThroughItsMetrics) {
  add("one", {});
  metrics(
      "one", {{{"kind", "train"},
               {"samples", 64},
               {"train_seconds", 0.5},
               {"loss", 2.25},
               {"lr", 0.1}},
              {{"kind", "test"},
               {"samples", 100},
               {"train_seconds", 1},
               {"test_accuracy", 90},
               {"test_loss", 0.75}},
              {{"kind", "lost_output"}, {"step", 3}},
              {{"kind", "train"},
               {"samples", 128},
               {"train_seconds", 1.5},
               {"loss", nullptr},
               {"lr", 0.05}}});
  const auto points = [&](const std::string& id) {
    return chart(id)["lines"][0]["points"].dump();
  };
  EXPECT_EQ(points("accuracy-seconds"), "[[1.0,90.0]]");
  EXPECT_EQ(points("accuracy-samples"), "[[100.0,90.0]]");
  EXPECT_EQ(points("test-loss-seconds"), "[[1.0,0.75]]");
  EXPECT_EQ(points("test-loss-samples"), "[[100.0,0.75]]");
  EXPECT_EQ(points("loss-seconds"), "[[0.5,2.25]]");
  EXPECT_EQ(points("loss-samples"), "[[64.0,2.25]]");
  EXPECT_EQ(points("lr-seconds"), "[[0.5,0.1],[1.5,0.05]]");
  EXPECT_EQ(points("lr-samples"), "[[64.0,0.1],[128.0,0.05]]");
}

TEST_F(ReportCharts, NameTheValidationPartAndTheBestValue) {
  add_validated("one", {{1, 90}, {2, 80}});
  const auto main = chart("accuracy-seconds");
  EXPECT_EQ(main["title"], "Validation accuracy against seconds");
  EXPECT_EQ(main["y"]["title"], "validation accuracy, %");
  EXPECT_THAT(texts_in(main["lines"], "label"), ElementsAre("one (90.00 %)"));
}

TEST_F(ReportCharts, ResumesAreVerticalMarks) {
  add("one", {});
  metrics(
      "one",
      {{{"kind", "test"},
        {"samples", 100},
        {"train_seconds", 1},
        {"test_accuracy", 90}},
       {{"kind", "resume"}, {"step", 20}, {"samples", 160}, {"train_seconds", 1.5}}});
  const auto by_seconds = chart("accuracy-seconds")["marks"];
  EXPECT_THAT(texts_in(by_seconds, "label"), ElementsAre("one resumed at step 20"));
  EXPECT_EQ(by_seconds[0]["x"], 1.5);
  EXPECT_EQ(chart("accuracy-samples")["marks"][0]["x"], 160);
  auto made = table();
  EXPECT_THAT(
      app::add_conclusions(made, scratch_.path()).caveats,
      ElementsAre("one was resumed at step 20; its times are sums over all starts."));
}

TEST_F(ReportCharts, RegressionsHaveAChartOfTheirErrors) {
  add_errors("one", {{1, 0.5}, {2, 0.25}});
  add_errors("two", {{1, 0.5}, {2, 0.125}});
  EXPECT_THAT(
      texts_in(charts(), "id"), ElementsAre("mae-seconds", "mae-samples", "seconds"));
  const auto main = chart("mae-seconds", {{"target_accuracy", 98}});
  EXPECT_EQ(main["group"], "main");
  EXPECT_EQ(main["y"]["title"], "test mean absolute error");
  EXPECT_THAT(
      texts_in(main["lines"], "label"), ElementsAre("two (0.125)", "one (0.25)"));
  EXPECT_EQ(main["lines"][0]["points"].dump(), "[[1.0,0.5],[2.0,0.125]]");
  EXPECT_THAT(texts_in(main["marks"], "label"), ElementsAre("two: 0.125 after 2 s"));
  // A run of another metric has its own chart.
  add("three", {{1, 90}});
  EXPECT_THAT(
      texts_in(charts(), "id"), ElementsAre(
                                    "mae-seconds", "accuracy-seconds",
                                    "accuracy-samples", "mae-samples", "seconds"));
  EXPECT_EQ(chart("accuracy-seconds")["lines"].size(), 1u);
}

TEST_F(ReportCharts, HalfALineOfAKilledRunIsLeftOut) {
  add("one", {{1, 90}, {2, 91}});
  const auto whole = read_file(scratch_ / "one/metrics.jsonl");
  write("one/metrics.jsonl", whole.substr(0, whole.size() - 4));
  EXPECT_EQ(chart("accuracy-seconds")["lines"][0]["points"].dump(), "[[1.0,90.0]]");
}

TEST_F(ReportCharts, ALongCurveKeepsItsEndsAndExtremesInFewPoints) {
  std::vector<json> lines;
  for (int i = 0; i < 10001; ++i) {
    const double loss = i == 4321 ? 9 : i == 8765 ? 0.001 : 1;
    lines.push_back(
        {{"kind", "train"}, {"samples", i}, {"train_seconds", i}, {"loss", loss}});
  }
  add("one", {});
  metrics("one", lines);
  const auto points = chart("loss-samples")["lines"][0]["points"];
  EXPECT_LE(points.size(), 2000u);
  EXPECT_EQ(points.front().dump(), "[0.0,1.0]");
  EXPECT_EQ(points.back().dump(), "[10000.0,1.0]");
  for (const char* extreme : {"[4321.0,9.0]", "[8765.0,0.001]"}) {
    EXPECT_THAT(points, testing::Contains(json::parse(extreme)));
  }
}

TEST_F(ReportCharts, ChartsWithoutPointsAreLeftOut) {
  add("one", {});
  EXPECT_THAT(charts(), IsEmpty());
  add("two", {{1, 90}});
  EXPECT_THAT(
      texts_in(charts(), "id"),
      ElementsAre("accuracy-seconds", "accuracy-samples", "seconds"));
}

TEST_F(ReportCharts, OneBadRecipeDoesNotFlattenTheGoodOnes) {
  const auto scale = [&](const std::string& id) { return chart(id)["y"]["scale"]; };
  add("good", {{1, 97.4}, {2, 98.1}});
  add("better", {{1, 97.9}, {2, 98.6}});
  EXPECT_EQ(scale("accuracy-seconds"), "linear");
  add("bad", {{1, 23.9}, {2, 24}});
  for (const char* id : {"accuracy-seconds", "accuracy-samples"}) {
    EXPECT_EQ(scale(id), "error");
    // A short curve is not thinned.
    EXPECT_EQ(chart(id)["lines"][2]["points"].size(), 2u);
  }
}

TEST_F(ReportCharts, AnAccuracyOfOneHundredHasNoErrorToCompare) {
  add("one", {{1, 98}, {2, 100}});
  EXPECT_EQ(chart("accuracy-seconds")["y"]["scale"], "linear");
  add("two", {{1, 50}, {2, 100}});
  EXPECT_EQ(chart("accuracy-seconds")["y"]["scale"], "error");
  rows_.clear();
  add("all", {{1, 100}, {2, 100}});
  EXPECT_EQ(chart("accuracy-seconds")["y"]["scale"], "linear");
}

TEST_F(ReportCharts, ALearningRateIsLogarithmicUnlessItIsZeroSomewhere) {
  const auto scale_of = [&](const std::vector<double>& rates) {
    std::vector<json> lines;
    for (const double lr : rates) {
      lines.push_back(
          {{"kind", "train"}, {"samples", 64}, {"train_seconds", 1}, {"lr", lr}});
    }
    metrics("one", lines);
    return chart("lr-samples")["y"]["scale"];
  };
  add("one", {});
  EXPECT_EQ(scale_of({1, 0.7, 0.06}), "linear");
  EXPECT_EQ(scale_of({1, 0.7, 0.04}), "log");
  EXPECT_EQ(scale_of({0, 1, 0.04}), "linear");
}

TEST_F(ReportCharts, SecondsAreLogarithmicIfATutorialWouldFlattenARun) {
  const auto with_tutorial = [](double seconds) {
    return json{
        {"tutorial", {{"seconds", seconds}, {"test_accuracy", 99}, {"epochs", 2}}}};
  };
  add("ours", {{1.5, 97}, {3, 99}}, with_tutorial(61));
  add("other", {{1.5, 97}, {3, 99}});
  EXPECT_EQ(chart("accuracy-seconds")["x"]["scale"], "log");
  EXPECT_EQ(chart("seconds")["scale"], "linear");
  // The chart has no tutorials.
  EXPECT_EQ(chart("accuracy-samples")["x"]["scale"], "linear");
  rows_[0].update(with_tutorial(81));
  EXPECT_EQ(chart("seconds")["scale"], "log");
  rows_[0].update(with_tutorial(59));
  EXPECT_EQ(chart("accuracy-seconds")["x"]["scale"], "linear");
}

TEST_F(ReportCharts, SecondsAreLogarithmicIfALongRunWouldFlattenAShortOne) {
  add("short", {{1, 90}});
  add("long", {{10, 90}, {19, 95}});
  EXPECT_EQ(chart("accuracy-seconds")["x"]["scale"], "linear");
  add("longer", {{10, 90}, {21, 95}});
  EXPECT_EQ(chart("accuracy-seconds")["x"]["scale"], "log");
}

TEST_F(ReportCharts, TheFirstChartMarksWinnerTargetAndTutorials) {
  const json tutorial = {{"seconds", 30}, {"test_accuracy", 99}};
  add("quick", {{1, 90}, {2, 98.5}}, {{"tutorial", tutorial}});
  add("good", {{2, 97}, {4, 99.25}});
  const auto main = chart("accuracy-seconds", {{"target_accuracy", 99}});
  EXPECT_EQ(main["group"], "main");
  EXPECT_EQ(main["title"], "Test accuracy against seconds");
  EXPECT_EQ(
      main["marks"].dump(),
      "[{\"kind\":\"winner\",\"label\":\"good: 99 % after 4 s\",\"run\":\"good\","
      "\"points\":[[4.0,99.25]]},{\"kind\":\"level\",\"label\":\"target 99 %\","
      "\"y\":99.0}]");
  EXPECT_THAT(
      texts_in(main["lines"], "label"),
      ElementsAre("good (99.25 %)", "quick (98.50 %)"));
  EXPECT_EQ(main["lines"][0]["wins"], true);
  EXPECT_EQ(main["lines"][1]["wins"], false);
  EXPECT_EQ(main["lines"][1]["tutorial"].dump(), "[[30.0,99.0]]");
  EXPECT_FALSE(main["lines"][0].contains("tutorial"));
  // The other charts have neither.
  const auto other = chart("accuracy-samples", {{"target_accuracy", 99}});
  EXPECT_THAT(other["marks"], IsEmpty());
  EXPECT_FALSE(other["lines"][1].contains("tutorial"));
}

TEST_F(ReportCharts, TheBestRunHasTheFirstStyle) {
  // The least accurate run is first.
  for (int i = 0; i < 10; ++i) {
    add("run" + std::to_string(i), {{1, 80}, {2, 90 + 0.5 * i}});
  }
  for (const char* id : {"accuracy-seconds", "accuracy-samples"}) {
    const auto lines = chart(id)["lines"];
    ASSERT_EQ(lines.size(), 10u);
    for (size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i]["run"], "run" + std::to_string(9 - i));
      EXPECT_EQ(lines[i]["style"], i);
    }
  }
  EXPECT_EQ(chart("seconds")["bars"][0]["run"], "run9");
}

TEST_F(ReportCharts, CostsAreComparedIfThereIsMoreThanOneRun) {
  const json costs = {
      {"samples_per_second", 1000.0},
      {"bytes_sent_per_rank", 2.5e6},
      {"exposed_comm_ms_per_step", 0.25},
      {"peak_memory_mib", 300.0},
      {"wall_seconds_range", {{"least", 1.5}, {"most", 2.5}}},
      {"tutorial", {{"seconds", 3}}}};
  add("one", {{1, 90}}, costs);
  EXPECT_EQ(chart("seconds"), nullptr);
  add("two", {});
  EXPECT_EQ(
      chart("seconds")["bars"].dump(),
      "[{\"run\":\"one\",\"style\":0,\"value\":2.0,\"least\":1.5,\"most\":2.5,"
      "\"tutorial\":3.0},{\"run\":\"two\",\"style\":1,\"value\":1.0}]");
  EXPECT_EQ(
      chart("bytes")["bars"].dump(), "[{\"run\":\"one\",\"style\":0,\"value\":2.5}]");
  EXPECT_EQ(chart("rate")["bars"][0]["value"], 1000);
  EXPECT_EQ(chart("exposed")["bars"][0]["value"], 0.25);
  EXPECT_EQ(chart("memory")["bars"][0]["value"], 300);
  EXPECT_EQ(chart("device-memory"), nullptr);
  rows_[1].update({{"peak_device_memory_mib", 80}});
  EXPECT_EQ(chart("device-memory")["title"], "Peak GPU memory");
}

TEST_F(ReportCharts, AScalingHasALinePerRecipeAgainstRanks) {
  // The fewest ranks are not first.
  for (const auto& [ranks, seconds] : {std::pair(2, 6.0), {1, 12.0}}) {
    add("x-" + std::to_string(ranks), {},
        {{"recipe", "some/x.toml"},
         {"world_size", ranks},
         {"wall_seconds", seconds},
         {"wall_seconds_range", {{"least", seconds - 1}, {"most", seconds + 1}}},
         {"tutorial", {{"seconds", 100 * seconds}}}});
  }
  add("y-1", {}, {{"world_size", 1}, {"wall_seconds", 4}, {"recipe", "y.toml"}});
  const json scaling = {{"kind", "scaling"}};
  EXPECT_THAT(
      texts_in(charts(scaling), "id"),
      ElementsAre("scaling-speed-up", "scaling-seconds"));
  const auto speed_up = chart("scaling-speed-up", scaling);
  EXPECT_THAT(texts_in(speed_up["lines"], "run"), ElementsAre("x", "y"));
  EXPECT_EQ(speed_up["lines"][0]["points"].dump(), "[[1.0,1.0],[2.0,2.0]]");
  EXPECT_EQ(speed_up["lines"][0]["wins"], true);
  EXPECT_EQ(speed_up["lines"][1]["wins"], false);
  EXPECT_THAT(texts_in(speed_up["marks"], "label"), ElementsAre("x-2: 2.00x", "ideal"));
  EXPECT_EQ(speed_up["marks"][1]["points"].dump(), "[[1.0,1.0],[2.0,2.0]]");
  const auto seconds = chart("scaling-seconds", scaling);
  EXPECT_EQ(seconds["y"]["scale"], "log");
  EXPECT_EQ(seconds["lines"][0]["points"].dump(), "[[1.0,12.0],[2.0,6.0]]");
  EXPECT_EQ(seconds["lines"][0]["ranges"].dump(), "[[2.0,5.0,7.0],[1.0,11.0,13.0]]");
  EXPECT_EQ(seconds["lines"][0]["tutorial"].dump(), "[[2.0,600.0],[1.0,1200.0]]");
}

}  // namespace tandem::report_charts_test

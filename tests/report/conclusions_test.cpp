// Conclusions from tables and curves: the winner, counts and caveats.

#include "app/report/conclusions.h"

#include <gmock/gmock.h>

#include "some_runs.h"
#include "tandem/base/error.h"

namespace tandem::conclusions_test {

using app::Conclusions;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ReportConclusions : public SomeRuns {
 protected:
  Conclusions add_conclusions(const json& more = {}) const {
    auto made = table(more);
    return app::add_conclusions(made, scratch_.path());
  }
};

TEST_F(ReportConclusions, TheMostAccurateRunWinsAndThenTheFastest) {
  add("quick", {{1, 90}, {2, 98.5}});
  add("good", {{2, 97}, {4, 99.25}});
  add("late", {{3, 97}, {9, 99.25}});
  const auto made = add_conclusions();
  EXPECT_EQ(
      made.verdict,
      "Best accuracy: good, 99.25 % after 4 s of training, the fastest of 2 with this "
      "accuracy.");
  ASSERT_TRUE(made.winner);
  EXPECT_EQ(made.winner->run, 1u);
  EXPECT_EQ(made.winner->words, "good: 99.25 % after 4 s");
  EXPECT_THAT(made.order, ElementsAre(1, 2, 0));
}

TEST_F(ReportConclusions, TheBestEvaluationOfARunCounts) {
  add("falls", {{1, 99}, {2, 97}});
  add("rises", {{1, 97}, {2, 98}});
  const auto made = add_conclusions();
  EXPECT_EQ(made.verdict, "Best accuracy: falls, 99.00 % after 1 s of training.");
  EXPECT_EQ(made.winner->x, 1);
  EXPECT_EQ(made.winner->y, 99);
}

TEST_F(ReportConclusions, NameTheValidationPart) {
  add_validated("one", {{1, 99}, {2, 97}});
  add_validated("two", {{1, 90}});
  EXPECT_EQ(
      add_conclusions().verdict,
      "Best validation accuracy: one, 99.00 % after 1 s of training.");
  EXPECT_EQ(
      add_conclusions({{"target_accuracy", 95}}).verdict,
      "First at 95 % validation accuracy: one, after 1 s of training.");
  EXPECT_THAT(add_conclusions().caveats, Not(Contains(HasSubstr("parts"))));
  add("three", {{1, 90}});
  EXPECT_THAT(
      add_conclusions().verdict, HasSubstr("Best validation or test accuracy: one"));
  EXPECT_THAT(
      add_conclusions().caveats,
      Contains("Runs of different parts: test in three; validation in one, two."));
}

TEST_F(ReportConclusions, WithATargetTheFirstRunThatReachesItWins) {
  add("quick", {{1, 90}, {2, 98.5}, {3, 98.5}});
  add("good", {{2.5, 97}, {1234.5, 99.25}});
  const struct {
    double target;
    const char* verdict;
    const char* words;
  } kCases[] = {
      {98, "First at 98 %: quick, after 2 s of training.", "quick: 98 % after 2 s"},
      {99, "First at 99 %: good, after 1234 s of training.", "good: 99 % after 1234 s"},
      {99.5, "No run reached 99.5 %; the best: good, 99.25 % after 1234 s of training.",
       "good: 99.25 % after 1234 s"}};
  for (const auto& [target, verdict, words] : kCases) {
    const auto made = add_conclusions({{"target_accuracy", target}});
    EXPECT_EQ(made.verdict, verdict);
    EXPECT_EQ(made.winner->words, words);
  }
}

TEST_F(ReportConclusions, TheRunWithTheLeastErrorWinsAmongRegressions) {
  add_errors("good", {{2, 0.5}, {4, 0.125}});
  add_errors("quick", {{1, 0.5}, {2, 0.25}});
  add("classifier", {{1, 99}});
  const auto made = add_conclusions({{"target_accuracy", 98}});
  EXPECT_EQ(
      made.verdict, "Best mean absolute error: good, 0.125 after 4 s of training.");
  EXPECT_EQ(made.winner->words, "good: 0.125 after 4 s");
  EXPECT_THAT(made.order, ElementsAre(0, 1, 2));
  EXPECT_THAT(
      made.caveats,
      testing::IsSupersetOf(
          {"The target is an accuracy, so the run with the best mean absolute error "
           "wins.",
           "Runs of different metrics: accuracy in classifier; mean absolute error in "
           "good, quick."}));
}

TEST_F(ReportConclusions, TheMedianArrivalOfRepeatedRunsCounts) {
  const auto arrivals = [&](const std::string& name, const Accuracies& curve) {
    json runs = json::array();
    for (size_t i = 0; i < curve.size(); ++i) {
      const auto directory = name + "." + std::to_string(i);
      runs.push_back({{"directory", directory}});
      metrics(
          directory, {{{"kind", "test"},
                       {"samples", 100},
                       {"train_seconds", curve[i].first},
                       {"test_accuracy", curve[i].second}}});
    }
    return json{{"runs", runs}};
  };
  const json more = {{"target_accuracy", 98}, {"repeats", 3}};
  // One fast repeat.
  add("lucky", {{1, 98}}, arrivals("lucky", {{1, 98}, {5, 98}, {6, 98}}));
  add("steady", {{3, 98}}, arrivals("steady", {{3, 98}, {4, 98}, {2, 98}}));
  EXPECT_THAT(
      add_conclusions(more).verdict, HasSubstr("First at 98 %: steady, after 3 s"));
  EXPECT_THAT(
      add_conclusions(more).caveats,
      ElementsAre(
          "Figures are medians of 3 runs, made in turn; curves are those of the "
          "median run."));
  // Two of three runs never reach the target.
  arrivals("steady", {{3, 98}, {4, 97}, {4, 97}});
  EXPECT_THAT(
      add_conclusions(more).verdict, HasSubstr("First at 98 %: lucky, after 5 s"));
}

TEST_F(ReportConclusions, AFailedRunAndASingleRunDoNotWin) {
  add("one", {{1, 90}});
  EXPECT_FALSE(add_conclusions().winner);
  EXPECT_EQ(add_conclusions().verdict, "");
  add("broken", {{1, 99}}, {{"status", "failed"}, {"reason", "it broke"}});
  EXPECT_FALSE(add_conclusions().winner);
  add("two", {{1, 80}});
  EXPECT_THAT(add_conclusions().verdict, HasSubstr("Best accuracy: one, 90.00 %"));
  EXPECT_THAT(add_conclusions().order, ElementsAre(0, 2, 1));
}

TEST_F(ReportConclusions, RunsOfDifferentEpochsAreNamed) {
  add("one", {{1, 90}});
  add("other", {{1, 91}});
  EXPECT_THAT(add_conclusions().caveats, IsEmpty());
  add("three", {{1, 90}, {2, 92}, {3, 93}});
  const std::string sentence =
      "Runs of different numbers of epochs: 1 epoch in one, other; 3 epochs in three.";
  EXPECT_THAT(add_conclusions().caveats, ElementsAre(sentence));
  EXPECT_THAT(add_conclusions({{"kind", "scaling"}}).caveats, Contains(sentence));
}

TEST_F(ReportConclusions, AShortenedRunHasACaveatAboutItsTutorial) {
  const json tutorial = {{"seconds", 91.3}, {"test_accuracy", 99.24}, {"epochs", 14}};
  add("short", {{10, 97}, {20, 98}}, {{"tutorial", tutorial}, {"limit", 1280}});
  EXPECT_THAT(
      add_conclusions().caveats,
      ElementsAre(
          "Figures of tutorials are of whole runs, but short made 2 epochs of 14 "
          "on 1280 samples."));
  // Tables of earlier versions have the key "document".
  rows_[0]["document"] = tutorial;
  rows_[0].erase("tutorial");
  EXPECT_THAT(add_conclusions().caveats, testing::SizeIs(1));
  rows_[0].update({{"epochs", 14}, {"limit", 0}});
  EXPECT_THAT(add_conclusions().caveats, IsEmpty());
}

TEST_F(ReportConclusions, SpeedUpsAreMediansAgainstTheFewestRanks) {
  const auto point = [&](int ranks, const std::vector<double>& seconds) {
    json runs = json::array();
    for (const double value : seconds) {
      runs.push_back({{"directory", "x"}, {"wall_seconds", value}});
    }
    add("x-" + std::to_string(ranks), {},
        {{"recipe", "x.toml"},
         {"world_size", ranks},
         {"wall_seconds", seconds[1]},
         {"runs", runs}});
  };
  // The fewest ranks are not first.
  point(2, {5, 6, 16});
  point(1, {11, 12, 12});
  auto scaling = table({{"kind", "scaling"}, {"repeats", 3}});
  const auto made = app::add_conclusions(scaling, scratch_.path());
  EXPECT_EQ(
      made.verdict,
      "Greatest speed-up: x-2, 2.00 times as fast as on the fewest ranks.");
  EXPECT_EQ(scaling["winner"]["name"], "x-2");
  EXPECT_EQ(scaling["rows"][0]["speed_up"], 2);
  EXPECT_EQ(
      scaling["rows"][0]["speed_up_range"], (json{{"least", 0.75}, {"most", 2.2}}));
  EXPECT_EQ(scaling["rows"][1]["speed_up"], 1);
  EXPECT_THAT(
      made.caveats,
      ElementsAre(
          "Figures are medians of 3 runs, made in turn; bars go from the least to "
          "the most."));
  EXPECT_THAT(
      add_conclusions({{"kind", "scaling"}}).caveats,
      ElementsAre("Speed-ups are of one run each; --repeat 3 gives medians."));
}

TEST_F(ReportConclusions, SkippedRecipesAreCountedAsSkipped) {
  add("one", {{1, 90}});
  add("two", {{1, 91}});
  rows_.push_back({{"name", "hosts"}, {"status", "skipped"}, {"reason", "no hosts"}});
  auto compared = table();
  const auto made = app::add_conclusions(compared, scratch_.path());
  EXPECT_EQ(made.counts, "3 recipes: 2 done, 1 skipped");
  EXPECT_EQ(compared["counts"], (json{{"done", 2}, {"skipped", 1}, {"failed", 0}}));
}

TEST_F(ReportConclusions, AnInvalidTableIsRefused) {
  for (const char* text : {"{\"rows\": [3]}", "{\"rows\": {}}", "[]", "{\"rows\": ["}) {
    replace_file(scratch_ / "table.json", text);
    const auto message =
        error_of<DataError>([&] { app::read_run_table(scratch_.path()); });
    EXPECT_THAT(message, HasSubstr("table.json' ")) << text;
    EXPECT_THAT(message, Not(HasSubstr("\n"))) << text;
  }
}

TEST_F(ReportConclusions, ValuesOfOtherTypesAreLeftOut) {
  replace_file(
      scratch_ / "table.json",
      "{\"kind\": 3, \"machine\": [], \"repeats\": \"x\", \"rows\": [{\"name\": 1, "
      "\"status\": {}, \"wall_seconds\": \"x\", \"tutorial\": [1], \"runs\": 3}]}");
  auto odd = app::read_run_table(scratch_.path());
  EXPECT_EQ(app::write_report(scratch_.path(), odd).counts, "1 run");
}

}  // namespace tandem::conclusions_test

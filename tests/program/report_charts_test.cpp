// What a report's charts say, of tables and curves whose figures the tests choose.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "browser.h"
#include "program.h"

namespace tandem::report_charts_test {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Seconds of training and percent, one for each test.
using Curve = std::vector<std::pair<double, double>>;

class ReportCharts : public testing::Test {
 protected:
  void add(const std::string& name, const Curve& curve, const json& more = {}) {
    json row = {{"name", name},
                {"recipe", name + ".toml"},
                {"status", "done"},
                {"epochs", curve.size()},
                {"world_size", 2},
                {"wall_seconds", curve.empty() ? 1 : curve.back().first + 1}};
    row.update(more.is_null() ? json::object() : more);
    rows_.push_back(row);
    metrics(name, curve);
  }

  void metrics(const std::string& name, const Curve& curve) const {
    std::string lines;
    int samples = 0;
    for (const auto& [seconds, accuracy] : curve) {
      lines += json({{"kind", "test"},
                     {"samples", samples += 100},
                     {"train_seconds", seconds},
                     {"test_accuracy", accuracy}})
                   .dump() +
               "\n";
    }
    make_directories(scratch_ / name);
    replace_file(scratch_ / (name + "/metrics.jsonl"), lines);
  }

  // report.html.
  std::string report(const json& more = {}) const {
    json table = {{"kind", "compare"}, {"rows", rows_}};
    table.update(more.is_null() ? json::object() : more);
    replace_file(scratch_ / "table.json", table.dump());
    const auto result = tandem_run({"report", scratch_ / ""});
    EXPECT_TRUE(result.status.ok()) << result.errors;
    return read_file(scratch_ / "report.html");
  }

  std::string picture() const {
    return read_file(scratch_ / "report.svg");
  }

  const Scratch scratch_;
  json rows_ = json::array();
};

// From the tag of a figure to its end.
std::string figure(const std::string& page, const std::string& id) {
  const auto begin = page.find("<figure id=\"" + id + "\"");
  return begin == std::string::npos
             ? ""
             : page.substr(begin, page.find("</figure>", begin) - begin);
}

std::vector<std::string> all_of(const std::string& text, const std::string& pattern) {
  const std::regex wanted(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), wanted), end; at != end;
       ++at) {
    found.push_back((*at)[1]);
  }
  return found;
}

TEST_F(ReportCharts, TheMostAccurateRunWins) {
  add("quick", {{1, 90}, {2, 98.5}});
  add("good", {{2, 97}, {4, 99.25}});
  add("late", {{3, 97}, {9, 99.25}});
  const auto page = report();
  const std::string verdict =
      "Best accuracy: good, 99.25 % after 4 s of training, the fastest of 2 with as "
      "much.";
  EXPECT_THAT(page, HasSubstr("<p class=\"verdict\">" + verdict + "</p>"));
  EXPECT_THAT(figure(page, "accuracy-seconds"), HasSubstr("★ good: 99.25 % after 4 s"));
  EXPECT_THAT(picture(), AllOf(HasSubstr(verdict), HasSubstr("★ good: 99.25 %")));
  EXPECT_THAT(
      all_of(page, "<tr class=\"wins\"><td>([^<]*)<"), testing::ElementsAre("good"));
  // Its line is the thick one, and no other.
  const auto thick = all_of(
      figure(page, "loss-seconds") + picture(),
      "<g class=\"run run-[0-9]+ [^\"]* wins\">\n<path class=\"line\"[^>]*>"
      "<title>([^<]*)<");
  EXPECT_THAT(thick, testing::ElementsAre("good"));
}

TEST_F(ReportCharts, WithATargetTheFirstRunThatReachesItWins) {
  add("quick", {{1, 90}, {2, 98.5}, {3, 98.5}});
  add("good", {{2.5, 97}, {4, 99.25}});
  auto page = report({{"target_accuracy", 98}});
  EXPECT_THAT(page, HasSubstr("First at 98 %: quick, after 2 s of training."));
  EXPECT_THAT(
      figure(page, "accuracy-seconds"),
      AllOf(HasSubstr("★ quick: 98 % after 2 s"), HasSubstr("target 98 %")));
  page = report({{"target_accuracy", 99}});
  EXPECT_THAT(page, HasSubstr("First at 99 %: good, after 4 s of training."));
  page = report({{"target_accuracy", 99.5}});
  EXPECT_THAT(
      page, HasSubstr("No run reached 99.5 %; the best: good, 99.25 % after 4 s"));
}

TEST_F(ReportCharts, OfRepeatedRunsTheMedianArrivalCounts) {
  const auto runs = [](const std::string& name) {
    return json{
        {"runs",
         {{{"directory", name}},
          {{"directory", name + ".2"}},
          {{"directory", name + ".3"}}}}};
  };
  // Lucky once.
  add("lucky", {{1, 98}}, runs("lucky"));
  metrics("lucky.2", {{5, 98}});
  metrics("lucky.3", {{6, 98}});
  add("steady", {{3, 98}}, runs("steady"));
  metrics("steady.2", {{4, 98}});
  metrics("steady.3", {{2, 98}});
  EXPECT_THAT(
      report({{"target_accuracy", 98}, {"repeats", 3}}),
      AllOf(
          HasSubstr("First at 98 %: steady, after 3 s"),
          HasSubstr("medians of 3 runs")));
  // Two of three never come.
  metrics("steady.2", {{4, 97}});
  metrics("steady.3", {{4, 97}});
  EXPECT_THAT(
      report({{"target_accuracy", 98}, {"repeats", 3}}),
      HasSubstr("First at 98 %: lucky, after 5 s"));
}

TEST_F(ReportCharts, AFailedRunCannotWinAndNobodyWinsAlone) {
  add("one", {{1, 90}});
  EXPECT_THAT(
      report(), AllOf(Not(HasSubstr("class=\"winner")), HasSubstr("verdict\"></p>")));
  add("broken", {{1, 99}}, {{"status", "failed"}, {"reason", "it broke"}});
  EXPECT_THAT(report(), Not(HasSubstr("★ one")));
  add("two", {{1, 80}});
  EXPECT_THAT(report(), HasSubstr("Best accuracy: one, 90.00 %"));
}

TEST_F(ReportCharts, SecondsAreLogarithmicWhereADocumentWouldFlattenARun) {
  const auto with_document = [](double seconds) {
    return json{
        {"document", {{"seconds", seconds}, {"test_accuracy", 99}, {"epochs", 2}}}};
  };
  add("ours", {{1.5, 97}, {3, 99}}, with_document(600));
  const std::string kLogarithmic = "seconds of training (logarithmic axis)";
  auto page = report();
  EXPECT_THAT(figure(page, "accuracy-seconds"), HasSubstr(kLogarithmic));
  EXPECT_THAT(figure(page, "seconds"), HasSubstr("logarithmic axis"));
  EXPECT_THAT(picture(), HasSubstr(kLogarithmic));
  // No document there.
  EXPECT_THAT(figure(page, "accuracy-samples"), Not(HasSubstr("logarithmic")));
  // Ours has room: a doubling of seconds is as wide at 3 as it would be at 300.
  const auto places = all_of(
      picture(), "<path class=\"dot\" d=\"M([0-9.]+) [^>]*><title>ours: (?:1.5|3) s");
  ASSERT_EQ(places.size(), 2u);
  EXPECT_GT(std::stod(places[1]) - std::stod(places[0]), 60);

  rows_[0].update(with_document(55));
  page = report();
  EXPECT_THAT(figure(page, "accuracy-seconds"), Not(HasSubstr("logarithmic")));
  EXPECT_THAT(figure(page, "seconds"), Not(HasSubstr("logarithmic")));
}

TEST_F(ReportCharts, ALongRunBesideAShortOneTakesALogarithmToo) {
  add("short", {{1, 90}});
  add("long", {{10, 90}, {19, 95}});
  EXPECT_THAT(figure(report(), "accuracy-seconds"), Not(HasSubstr("logarithmic")));
  add("longer", {{10, 90}, {21, 95}});
  EXPECT_THAT(figure(report(), "accuracy-seconds"), HasSubstr("logarithmic"));
}

class TenRuns : public ReportCharts {
 protected:
  TenRuns() {
    // Those of the least accuracy come first.
    for (int i = 0; i < 10; ++i) {
      add("run" + std::to_string(i), {{1, 80}, {2, 90 + 0.5 * i}});
    }
  }
};

TEST_F(TenRuns, EightAreShownTheBestFirst) {
  const auto page = report();
  EXPECT_EQ(
      all_of(page, "<input type=\"checkbox\" id=\"show-([0-9]+)\" checked").size(), 8u);
  const auto names = all_of(page, "<input [^>]*>.*</svg>([^<]*)</label>");
  ASSERT_EQ(names.size(), 10u);
  EXPECT_EQ(names.front(), "run9");
  EXPECT_EQ(names.back(), "run0");
  // The others are there, behind a class that hides them without a script.
  const std::string line = "<g class=\"run (run-[0-9]+ [^\"]*)\">";
  const auto lines = all_of(figure(page, "accuracy-samples"), line);
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_EQ(
      std::count_if(
          lines.begin(), lines.end(),
          [](const auto& look) { return look.find(" over") == std::string::npos; }),
      8);
  EXPECT_THAT(page, HasSubstr("\n.over { display: none; }"));
  // No two lines look the same.
  std::set<std::string> looks;
  for (const auto& look : lines) {
    looks.insert(
        look.substr(look.find("colour-"), std::string("colour-0 dash-0").size()));
  }
  EXPECT_EQ(looks.size(), 10u);
  EXPECT_EQ(all_of(picture(), line).size(), 8u);
  EXPECT_THAT(picture(), AllOf(HasSubstr("run2"), Not(HasSubstr("run1"))));
}

// What a page is after somebody's clicks; "" without a browser.
std::string after(
    const std::string& page, const std::string& script, const Scratch& scratch) {
  const std::string shown =
      "const shown = [...document.querySelectorAll('.wide .run:not(.label)')]"
      ".filter((line) => getComputedStyle(line).display !== 'none')"
      ".map((line) => /run-[0-9]+/.exec(line.getAttribute('class'))[0]);"
      "document.body.dataset.shown = shown.sort().join(' ');";
  auto changed = page;
  changed.insert(changed.rfind("</body>"), "<script>" + script + shown + "</script>\n");
  replace_file(scratch / "clicked.html", changed);
  return drawn_page(scratch / "clicked.html", scratch / "profile");
}

TEST_F(TenRuns, TheLegendShowsAnyButNeverMoreThanEight) {
  const auto page = report();
  const auto untouched = after(page, "", scratch_);
  if (untouched.empty()) {
    GTEST_SKIP() << "no chromium to open the report in; scripts/setup --ci, then "
                    "scripts/test -R Report";
  }
  EXPECT_THAT(
      untouched,
      HasSubstr("data-shown=\"run-0 run-1 run-2 run-3 run-4 run-5 run-6 run-7\""));
  const std::string click =
      "const click = (i) => "
      "document.getElementById('show-' + i).click();";
  // A click on a ninth does nothing.
  EXPECT_THAT(
      after(page, click + "click(9);", scratch_),
      HasSubstr("data-shown=\"run-0 run-1 run-2 run-3 run-4 run-5 run-6 run-7\""));
  EXPECT_THAT(
      after(page, click + "click(0); click(9); click(8);", scratch_),
      HasSubstr("data-shown=\"run-1 run-2 run-3 run-4 run-5 run-6 run-7 run-9\""));
}

TEST_F(ReportCharts, RunsOfDifferentEpochsAreNamed) {
  add("one", {{1, 90}});
  add("other", {{1, 91}});
  const std::string kSentence = "Runs of different numbers of epochs: ";
  EXPECT_THAT(report(), Not(HasSubstr(kSentence)));
  add("three", {{1, 90}, {2, 92}, {3, 93}});
  const std::string whole = kSentence + "1 epoch in one, other; 3 epochs in three.";
  EXPECT_THAT(report(), HasSubstr("<li>" + whole + "</li>"));
  EXPECT_THAT(picture(), HasSubstr(whole));
  // A scaling's lines too.
  const auto scaling = report({{"kind", "scaling"}});
  EXPECT_THAT(scaling, HasSubstr("<li>" + whole + "</li>"));
}

TEST_F(ReportCharts, AShortenedRunIsNotPassedOffAsItsDocuments) {
  const json document = {{"seconds", 91.3}, {"test_accuracy", 99.24}, {"epochs", 14}};
  add("short", {{10, 97}, {20, 98}}, {{"document", document}, {"limit", 1280}});
  EXPECT_THAT(
      report(), HasSubstr("Documents' figures are of whole runs, but short made 2 "
                          "epochs of 14 on 1280 samples."));
  rows_[0].update({{"epochs", 14}, {"limit", 0}});
  EXPECT_THAT(report(), Not(HasSubstr("whole runs, but")));
}

TEST_F(ReportCharts, SpeedUpsAreOfMediansAgainstTheFewestRanks) {
  const auto point = [&](int ranks, const std::vector<double>& seconds) {
    json runs = json::array();
    for (const double value : seconds) {
      runs.push_back({{"directory", "x"}, {"wall_seconds", value}});
    }
    const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
    add("x-" + std::to_string(ranks), {},
        {{"recipe", "x.toml"},
         {"world_size", ranks},
         {"wall_seconds", seconds[1]},
         {"wall_seconds_range", {{"least", *least}, {"most", *most}}},
         {"runs", runs}});
  };
  // Not the fewest first.
  point(2, {5, 6, 16});
  point(1, {11, 12, 12});
  const auto page = report({{"kind", "scaling"}, {"repeats", 3}});
  EXPECT_THAT(
      page, AllOf(
                HasSubstr("<td>x-2</td><td>2</td><td>6.00</td><td>5.00-16.0</td>"
                          "<td>2.00</td><td>0.75-2.20</td>"),
                HasSubstr("<td>x-1</td><td>1</td><td>12.0</td><td>11.0-12.0</td>"
                          "<td>1.00</td>"),
                HasSubstr("Figures are medians of 3 runs"),
                HasSubstr("Greatest speed-up: x-2, 2.00 times as fast")));
  EXPECT_THAT(
      figure(page, "scaling-speed-up"),
      AllOf(
          HasSubstr("★ x-2: 2.00x"), HasSubstr("data-points=\"2\""),
          HasSubstr("<title>x: 0.75 to 2.2 times as fast</title>")));
  EXPECT_THAT(
      figure(page, "scaling-seconds"), HasSubstr("<title>x: 5 to 16 s</title>"));
  EXPECT_THAT(
      report({{"kind", "scaling"}}),
      HasSubstr("Speed-ups are of one run each; --repeat 3 gives medians."));
}

TEST_F(ReportCharts, SkippedRecipesAreCountedAsSkipped) {
  add("one", {{1, 90}});
  add("two", {{1, 91}});
  rows_.push_back({{"name", "hosts"}, {"status", "skipped"}, {"reason", "no hosts"}});
  const auto page = report();
  EXPECT_THAT(
      page, AllOf(
                HasSubstr("<h1>2 recipes compared</h1>"),
                HasSubstr("<p>3 recipes: 2 done, 1 skipped</p>"),
                HasSubstr("<li>hosts skipped: no hosts</li>")));
  EXPECT_THAT(
      all_of(page, "<input [^>]*>.*</svg>([^<]*)</label>"),
      testing::ElementsAre("two", "one"));
  EXPECT_THAT(figure(page, "seconds"), HasSubstr("data-points=\"2\""));
}

TEST_F(ReportCharts, EveryChartHasATitleAndADescription) {
  add("one", {{1, 90}});
  add("two", {{1, 91}});
  const auto page = report();
  const auto charts = all_of(page, "(<svg class=\"chart\")");
  EXPECT_GE(charts.size(), 6u);
  EXPECT_EQ(all_of(page, "(role=\"img\" aria-labelledby)").size(), charts.size());
  EXPECT_EQ(all_of(page, "<desc id=\"[^\"]+\">([^<]+)</desc>").size(), charts.size());
  // Colour is not all that tells lines apart.
  const auto markers = all_of(
      figure(page, "accuracy-samples"),
      "<path class=\"dot\" d=\"M[0-9.]+ [0-9.]+([^\"]*)");
  ASSERT_EQ(markers.size(), 2u);
  EXPECT_NE(markers[0], markers[1]);
}

TEST_F(ReportCharts, ThePictureNeedsNothingElse) {
  add("a<b>&\"", {{1, 90}, {2, 95}});
  add("two", {{1, 91}, {2, 94}});
  report();
  EXPECT_THAT(
      picture(),
      AllOf(
          HasSubstr("xmlns=\"http://www.w3.org/2000/svg\""), Not(HasSubstr("<script")),
          Not(HasSubstr("href")), Not(HasSubstr("url(")),
          HasSubstr("a&lt;b&gt;&amp;&quot;"), HasSubstr("<rect class=\"card\"")));
  const auto shown = drawn_page(scratch_ / "report.svg", scratch_ / "profile");
  if (shown.empty()) {
    GTEST_SKIP() << "no chromium to open the picture in; scripts/setup --ci, then "
                    "scripts/test -R Report";
  }
  EXPECT_THAT(shown, AllOf(Not(HasSubstr("parsererror")), HasSubstr("</svg>")));
}

TEST_F(ReportCharts, ATableOfSomethingElseIsRefusedInOneLine) {
  for (const char* table :
       {"{\"rows\": [3]}", "{\"rows\": {}}", "[]", "{\"rows\": ["}) {
    replace_file(scratch_ / "table.json", table);
    const auto result = tandem_run({"report", scratch_ / ""});
    EXPECT_EQ(result.status.code, 1) << table;
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1)
        << result.errors;
  }
  // Values of other types are left out.
  replace_file(
      scratch_ / "table.json",
      "{\"kind\": 3, \"machine\": [], \"repeats\": \"x\", \"rows\": [{\"name\": 1, "
      "\"status\": {}, \"wall_seconds\": \"x\", \"document\": [1], \"runs\": 3}]}");
  const auto odd = tandem_run({"report", scratch_ / ""});
  EXPECT_TRUE(odd.status.ok()) << odd.errors;
}

}  // namespace tandem::report_charts_test

// compare, scaling and report with real runs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "program.h"
#include "tests/report/report_series.h"

namespace tandem::compare_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Recipes of runs of a second or two, and the directories of their comparisons.
class Compare : public testing::Test {
 protected:
  void SetUp() override {
    recipe("one", "strategy = \"sequential\"\n[tutorial]\nseconds = 52.3\n");
    recipe(
        "two",
        "nproc = 2\n[tutorial]\nmachine = \"two of them\"\nseconds = 91.3\n"
        "test_accuracy = 99.24\n");
    recipe("threads", "nproc = 2\nrank_type = \"thread\"\n");
  }

  std::string recipe(const std::string& name, const std::string& settings) const {
    const auto path = scratch_ / (name + ".toml");
    replace_file(
        path,
        "model = \"simplenet\"\nlog_every = 3\nlimit = 6400\nepochs = 3\n" + settings);
    return path;
  }

  CommandResult compare(const std::vector<std::string>& recipes) const {
    Arguments command = {"compare"};
    for (const auto& name : recipes) {
      command.push_back(scratch_ / (name + ".toml"));
    }
    return tandem_run(with(
        command,
        {"--data", "digits", "--limit", "1280", "--epochs", "2", "--out", out_}));
  }

  // Expects figures in the summaries of "one", "two" and "threads".
  void expect_traffic_and_memory() const {
    const auto value = [&](const char* name, const char* key) {
      return json_number(out_ + "/" + name + "/summary.json", key);
    };
    EXPECT_EQ(value("one", "bytes_sent_per_rank"), 0);
    // At least 20 steps of 7850 float32 gradients; over shared memory ranks also send
    // the parameters.
    constexpr double kGradients = 20 * 7850 * 4;
    EXPECT_GE(value("threads", "bytes_sent_per_rank"), kGradients);
    EXPECT_LE(value("threads", "bytes_sent_per_rank"), kGradients * 1.5);
    EXPECT_GE(value("two", "bytes_sent_per_rank"), kGradients * 2);
    EXPECT_LE(value("two", "bytes_sent_per_rank"), kGradients * 2.5);
    EXPECT_NEAR(value("two", "gradient_bytes"), 7850 * 4, 256);
    EXPECT_GT(value("one", "peak_memory_mib"), 20);
    EXPECT_GT(value("two", "train_accuracy"), 30);
  }

  const Scratch scratch_;
  const std::string out_ = scratch_ / "out";
};

int64_t count_lines(const std::string& path, const std::string& with_text) {
  return static_cast<int64_t>(lines_with(read_file(path), with_text).size());
}

TEST_F(Compare, NamesTheWinner) {
  // This recipe learns nothing.
  recipe("still", "strategy = \"sequential\"\noptimizer = \"sgd\"\nlr = 1e-9\n");
  checked(compare({"still", "one"}));
  const auto table = nlohmann::json::parse(read_file(out_ + "/table.json"));
  EXPECT_EQ(table["winner"]["name"], "one");
  const std::string why = table["winner"]["why"];
  EXPECT_THAT(why, HasSubstr("Best accuracy: one, "));
  EXPECT_THAT(read_file(out_ + "/table.md"), HasSubstr("\n" + why + "\n"));

  const auto aimed = run_ok(
      {"compare", scratch_ / "still.toml", scratch_ / "one.toml", "--target", "30",
       "--limit", "1280", "--out", scratch_ / "aimed"});
  EXPECT_THAT(aimed.output, HasSubstr("\nFirst at 30 %: one, after "));
}

TEST_F(Compare, GridRunsAllCombinationsOfValues) {
  const auto result = run_ok(
      {"compare", scratch_ / "one.toml", "--grid", "lr=0.1,0.5", "--grid", "seed=1,2",
       "--limit", "640", "--epochs", "1", "--out", out_});
  for (const char* lr : {"0.1", "0.5"}) {
    for (const char* seed : {"1", "2"}) {
      const auto run = std::string("one-lr=") + lr + "-seed=" + seed;
      EXPECT_THAT(result.output, HasSubstr("\n" + run + " "));
      expect_parts(
          read_file(out_ + "/" + run + "/config.toml"),
          {std::string("\nlr = ") + lr + "\n", std::string("\nseed = ") + seed + "\n"});
    }
  }
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle]
                                : (values[middle - 1] + values[middle]) / 2;
}

std::vector<double> seconds_of_runs(const nlohmann::json& row) {
  std::vector<double> seconds;
  for (const auto& run : row["runs"]) {
    seconds.push_back(run["wall_seconds"]);
  }
  return seconds;
}

TEST_F(Compare, RepeatsInTurnAndReportsMedians) {
  // Its directory would be that of the second run of "one".
  recipe("one.2", "strategy = \"sequential\"\n");
  const auto result = run_ok(
      {"compare", scratch_ / "one.toml", scratch_ / "one.2.toml", "--repeat", "4",
       "--limit", "640", "--epochs", "1", "--out", out_});
  size_t at = 0;
  for (const char* run :
       {"1/2 one, run 1 of 4", "2/2 one.2-2, run 1 of 4", "1/2 one, run 2 of 4",
        "2/2 one.2-2, run 2 of 4"}) {
    at = result.errors.find(run, at);
    ASSERT_NE(at, std::string::npos) << run << "\n" << result.errors;
  }
  const auto table = nlohmann::json::parse(read_file(out_ + "/table.json"));
  ASSERT_EQ(table["rows"].size(), 2u);
  for (const auto& row : table["rows"]) {
    const auto seconds = seconds_of_runs(row);
    ASSERT_EQ(seconds.size(), 4u);
    EXPECT_NEAR(row["wall_seconds"], median_of(seconds), 1e-9);
    EXPECT_EQ(
        row["wall_seconds_range"]["least"],
        *std::min_element(seconds.begin(), seconds.end()));
    EXPECT_EQ(
        row["wall_seconds_range"]["most"],
        *std::max_element(seconds.begin(), seconds.end()));
    for (const auto& run : row["runs"]) {
      const auto directory = out_ + "/" + run["directory"].get<std::string>();
      EXPECT_TRUE(file_exists(directory + "/summary.json")) << directory;
    }
  }
  EXPECT_THAT(result.output, HasSubstr("Figures are medians of 4 runs"));
}

TEST_F(Compare, SpeedUpsAreRatiosOfMediansOfThreeRuns) {
  run_ok(
      {"scaling", scratch_ / "threads.toml", "--nproc", "2,1", "--limit", "640",
       "--epochs", "1", "--out", out_});
  const auto table = nlohmann::json::parse(read_file(out_ + "/scaling.json"));
  const auto& two = table["rows"][0];
  const auto& one = table["rows"][1];
  const auto two_seconds = seconds_of_runs(two);
  const auto one_seconds = seconds_of_runs(one);
  ASSERT_EQ(two_seconds.size(), 3u);
  ASSERT_EQ(one_seconds.size(), 3u);
  EXPECT_EQ(one["speed_up"], 1);
  EXPECT_NEAR(two["speed_up"], median_of(one_seconds) / median_of(two_seconds), 1e-9);
  std::vector<double> in_turn;
  for (size_t i = 0; i < 3; ++i) {
    in_turn.push_back(one_seconds[i] / two_seconds[i]);
  }
  std::sort(in_turn.begin(), in_turn.end());
  EXPECT_NEAR(two["speed_up_range"]["least"], in_turn.front(), 1e-9);
  EXPECT_NEAR(two["speed_up_range"]["most"], in_turn.back(), 1e-9);
}

TEST_F(Compare, ARunThatFailsIsNotRepeated) {
  recipe("broken", "optimizer = \"sgd\"\nlr = 1e36\n");
  const auto result = tandem_run(
      {"compare", scratch_ / "broken.toml", "--repeat", "3", "--limit", "640", "--out",
       out_});
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(result.output, HasSubstr("\n1 recipe: 1 failed.\n"));
  EXPECT_FALSE(file_exists(out_ + "/broken.2"));
}

TEST_F(Compare, WritesOneTableOfAllRecipes) {
  const auto result = checked(compare({"one", "two", "threads"}));
  expect_parts(
      result.output,
      {"recipe", "samples/s", "\none ", "52.3 s", "91.3 s, 99.24 %", "\nthreads "});
  std::istringstream lines(result.output);
  std::string line;
  while (std::getline(lines, line) && line != "3 recipes: 3 done.") {
    EXPECT_LE(line.size(), 100u) << line;
  }
  EXPECT_EQ(line, "3 recipes: 3 done.");
  const auto table = read_file(out_ + "/table.json");
  for (const char* key :
       {"test_accuracy", "train_accuracy", "wall_seconds", "train_seconds",
        "samples_per_second", "bytes_sent_per_rank", "exposed_comm_ms_per_step",
        "peak_memory_mib", "\"machine\": \"two of them\""}) {
    EXPECT_THAT(table, HasSubstr(key));
  }
  EXPECT_THAT(read_file(out_ + "/table.md"), HasSubstr("\n| two | 2 | "));
  for (const char* name : {"one", "two", "threads"}) {
    const auto run = out_ + "/" + name;
    EXPECT_EQ(json_number(run + "/summary.json", "epochs"), 2) << name;
    EXPECT_THAT(read_file(run + "/output.txt"), HasSubstr("Test set: ")) << name;
  }
  expect_traffic_and_memory();
}

TEST_F(Compare, RunsHaveTheResultsOfTrainAndAreKept) {
  checked(compare({"two"}));
  const auto own = scratch_ / "own";
  run_ok(
      {"train", scratch_ / "two.toml", "--limit", "1280", "--epochs", "2", "--out",
       own});
  EXPECT_EQ(hash_of(out_ + "/two"), hash_of(own));
  const auto before = read_file(out_ + "/table.json");
  const auto again = compare({"threads"});
  expect_exit(again, 2, {"choose another --out"});
  EXPECT_EQ(read_file(out_ + "/table.json"), before);
}

TEST_F(Compare, ContinuesAfterAFailureAndExitsWithOne) {
  // A loss that is not finite ends a run.
  recipe("broken", "optimizer = \"sgd\"\nlr = 1e36\n");
  const auto result = compare({"broken", "one"});
  EXPECT_EQ(result.status.code, 1);
  expect_parts(
      result.output,
      {"broken (failed)", "broken failed: [train] the loss is", "\none "});
  EXPECT_TRUE(file_exists(out_ + "/one/summary.json"));
  EXPECT_TRUE(file_exists(out_ + "/report.html"));
}

TEST_F(Compare, SkipsRecipesThatThisBuildCannotRunWithAReason) {
  recipe("hosts", "nnodes = 2\n");
  replace_file(scratch_ / "curve.toml", "[scaling]\nrecipes = [\"one.toml\"]\n");
  const auto result = checked(compare({"hosts", "curve", "one"}));
  expect_parts(
      result.output,
      {"hosts skipped: it needs 2 hosts", "curve skipped: it is for tandem scaling",
       "\none ", "\n3 recipes: 1 done, 2 skipped.\n"});
  const auto table = nlohmann::json::parse(read_file(out_ + "/table.json"));
  EXPECT_EQ(
      table["counts"], (nlohmann::json{{"done", 1}, {"skipped", 2}, {"failed", 0}}));
  EXPECT_THAT(
      read_file(out_ + "/report.html"), HasSubstr("<h1>1 recipe compared</h1>"));
  const auto nothing =
      tandem_run({"compare", scratch_ / "hosts.toml", "--out", scratch_ / "nothing"});
  EXPECT_EQ(nothing.status.code, 1);
  EXPECT_THAT(nothing.output, HasSubstr("\n1 recipe: 1 skipped.\n"));
}

TEST_F(Compare, RefusesAnInvalidRecipeBeforeTheFirstRun) {
  const auto unknown = recipe("unknown", "strategy = \"telepathy\"\n");
  const auto result = compare({"one", "unknown"});
  expect_exit(result, 2, {unknown + ":", "strategy cannot be 'telepathy'"});
  EXPECT_FALSE(file_exists(out_ + "/one"));
}

TEST_F(Compare, SkipsARecipeForMpirunWithoutMpirun) {
  const auto mpi = recipe("mpi", "launcher = \"mpirun\"\nnproc = 2\n");
  const auto result = run_ok(
      {"compare", mpi, scratch_ / "one.toml", "--limit", "640", "--out", out_},
      {{"PATH", scratch_ / "no-programs"}});
  EXPECT_THAT(result.output, HasSubstr("mpi skipped: mpirun is missing"));
  EXPECT_TRUE(file_exists(out_ + "/one/summary.json"));
}

TEST_F(Compare, RefusesInvalidArgumentsBeforeTheFirstRun) {
  const auto refused = [&](const Arguments& arguments, int code,
                           const std::string& reason) {
    const auto result = tandem_run(with(arguments, {"--out", out_}));
    expect_exit(result, code, {reason});
    EXPECT_FALSE(file_exists(out_));
  };
  const auto one = scratch_ / "one.toml";
  recipe("mistyped", "epoch = 3\n");
  recipe("odd", "[tutorial]\nsecond = 3\n");
  recipe("uneven", "[tutorial]\nprocesses = [1, 2]\nminutes = [12.1]\n");
  refused({"compare"}, 2, "RECIPES is missing, expected recipes: TOML files");
  refused({"compare", one, "--epoch", "1"}, 2, "--epochs");
  refused({"compare", one, "--limit", "x"}, 2, "'x' is not a whole number");
  refused({"compare", one, "--set", "lr"}, 2, "expected key=value");
  refused({"compare", one, scratch_ / "none.toml"}, 1, "none.toml");
  refused({"compare", one, scratch_ / "mistyped.toml"}, 2, "did you mean 'epochs'");
  refused({"compare", one, scratch_ / "odd.toml"}, 2, "did you mean 'seconds'");
  refused(
      {"compare", one, scratch_ / "uneven.toml"}, 2,
      "minutes has 1 values, expected 2");
  refused({"scaling", one, "--nproc", "1,x"}, 2, "'1,x'");
  refused({"scaling", one, "--nproc", "2,2"}, 2, "different numbers");
  refused({"scaling", one, "--nproc", "0"}, 2, "'0'");
  refused({"compare", one, "--repeat", "0"}, 2, "'0' is not a whole number from 1");
  refused({"compare", one, "--grid", "lr"}, 2, "--grid is 'lr', expected SETTING=");
  refused({"compare", one, "--grid", "lrr=1,2"}, 2, "lrr");
  refused({"compare", one, "--target", "0"}, 2, "'0' is not an accuracy");
  refused({"compare", one, "--target", "99%"}, 2, "'99%' is not an accuracy");
  refused({"scaling", one, "--target", "99"}, 2, "--target");
}

TEST_F(Compare, ReusesADirectoryInWhichEveryRecipeFailedWithoutACheckpoint) {
  recipe("one", "optimizer = \"sgd\"\nlr = 1e36\n");
  ASSERT_EQ(compare({"one"}).status.code, 1);
  const auto checkpoint = out_ + "/one/checkpoints/step-00000007";
  make_directories(checkpoint);
  const auto refused = compare({"one"});
  expect_exit(refused, 2, {"choose another --out"});
  remove_all(checkpoint);
  recipe("one", "");
  checked(compare({"one"}));
  EXPECT_TRUE(file_exists(out_ + "/one/summary.json"));
}

// Only digits are available, because they are generated.
Variables without_data(const Scratch& scratch) {
  return {{"TANDEM_DATA", scratch / "none"}, {"XDG_CACHE_HOME", scratch / "cache"}};
}

TEST_F(Compare, StartsNothingIfNoRecipeHasItsData) {
  const std::vector<std::string> recipes = {
      recipe("a", "data = \"mnist\"\n"), recipe("b", "data = \"kmnist\"\n")};
  for (const char* command : {"compare", "scaling"}) {
    const auto result =
        tandem_run(with({command, "--out", out_}, recipes), without_data(scratch_));
    expect_error_line(
        result, 1,
        {"no run was started because data is missing: mnist and kmnist; "
         "run tandem data fetch mnist and tandem data fetch kmnist"});
    EXPECT_THAT(result.errors, testing::EndsWith("--data\n"));
    EXPECT_FALSE(file_exists(out_));
  }
}

TEST_F(Compare, SkipsRecipesThatLackTheirDataAndListsThem) {
  const auto result = run_ok(
      {"compare", recipe("a", "data = \"mnist\"\n"), recipe("b", "data = \"mnist\"\n"),
       scratch_ / "one.toml", "--limit", "640", "--out", out_},
      without_data(scratch_));
  EXPECT_THAT(
      result.errors,
      HasSubstr("2 of 3 runs are skipped because data is missing, mnist: a, b; run "
                "tandem data fetch mnist"));
  expect_parts(result.output, {"a skipped: mnist is missing", "1 done, 2 skipped"});
}

TEST_F(Compare, RecipesWithTheSameNameGetDifferentDirectories) {
  checked(compare({"one", "one"}));
  EXPECT_TRUE(file_exists(out_ + "/one/summary.json"));
  EXPECT_TRUE(file_exists(out_ + "/one-2/summary.json"));
}

TEST_F(Compare, ScalingRunsEachNumberOfRanks) {
  recipe("curve", "[tutorial]\nminutes = [12.12, 9.4, 11.84]\n");
  const auto result = run_ok(
      {"scaling", scratch_ / "curve.toml", scratch_ / "threads.toml", "--repeat", "1",
       "--nproc", "1,3", "--data", "digits", "--limit", "640", "--epochs", "1", "--out",
       out_});
  expect_parts(result.output, {"speed-up", "curve-1", "curve-3", "727", "710"});
  EXPECT_EQ(json_number(out_ + "/curve-3/summary.json", "world_size"), 3);
  EXPECT_THAT(read_file(out_ + "/scaling.json"), HasSubstr("\"kind\": \"scaling\""));
  const auto charts = charts_in(read_file(out_ + "/report.html"));
  EXPECT_EQ(count_in_chart(charts, "scaling-seconds", "points"), 4);
  EXPECT_EQ(count_in_chart(charts, "scaling-speed-up", "points"), 4);
  EXPECT_EQ(count_in_chart(charts, "scaling-seconds", "tutorial"), 2);
}

TEST_F(Compare, ShowsFiguresOfTutorialsOnlyForTheSameNumberOfRanks) {
  recipe(
      "losses",
      "nproc = 2\n[tutorial]\nseconds = 77.7\nlast_losses = [0.231, 0.36, 0.3]\n");
  const auto result = run_ok(
      {"scaling", scratch_ / "losses.toml", "--repeat", "1", "--nproc", "1,2,3",
       "--limit", "640", "--epochs", "1", "--out", out_});
  for (const auto& line : split(result.output, '\n')) {
    EXPECT_EQ(line.find(" 77.7") != std::string::npos, line.rfind("losses-2", 0) == 0)
        << line;
  }
  EXPECT_EQ(count_lines(out_ + "/scaling.json", "\"seconds\": 77.7"), 1);
  EXPECT_EQ(count_lines(out_ + "/scaling.json", "\"last_losses\""), 1);

  const auto compared = tandem_run(
      {"compare", scratch_ / "losses.toml", "--set", "nproc=3", "--limit", "640",
       "--epochs", "1", "--out", scratch_ / "three"});
  EXPECT_THAT(
      compared.output, AllOf(HasSubstr("loss 0.231 to 0.36"), Not(HasSubstr("77.7"))));
}

TEST_F(Compare, ScalingGivesEachRankOneThreadAtEveryPoint) {
  const auto scale = [&](const std::string& out, const Arguments& before,
                         const Variables& variables) {
    checked(run_command(
        with(
            before, {program(), "scaling", scratch_ / "one.toml", "--repeat", "1",
                     "--set", "strategy=data_parallel", "--nproc", "1,4", "--limit",
                     "640", "--epochs", "1", "--out", out}),
        variables, 300));
  };
  const auto threads = [](const std::string& run) {
    return json_number(run + "/environment.json", "threads_per_rank");
  };
  scale(out_, {"/usr/bin/env", "-u", "OMP_NUM_THREADS"}, {});
  EXPECT_EQ(threads(out_ + "/one-1"), 1);
  EXPECT_EQ(threads(out_ + "/one-4"), 1);
  const auto more = scratch_ / "more";
  scale(more, {}, {{"OMP_NUM_THREADS", "2"}});
  EXPECT_EQ(threads(more + "/one-1"), 2);
  EXPECT_EQ(threads(more + "/one-4"), 2);
}

TEST_F(Compare, AScalingRecipeNamesRecipesAndRanks) {
  replace_file(
      scratch_ / "curves.toml",
      "[scaling]\nrecipes = [\"one.toml\", \"threads.toml\"]\nnproc = [1]\n");
  run_ok(
      {"scaling", scratch_ / "curves.toml", "--repeat", "1", "--limit", "640",
       "--epochs", "1", "--out", out_});
  EXPECT_TRUE(file_exists(out_ + "/one-1/summary.json"));
  EXPECT_TRUE(file_exists(out_ + "/threads-1/summary.json"));
  const auto trained = tandem_run({"train", scratch_ / "curves.toml"});
  expect_exit(trained, 2, {"use tandem scaling"});
}

TEST_F(Compare, ReportIsWrittenAgainFromFiles) {
  checked(compare({"one", "threads"}));
  const auto before = read_file(out_ + "/report.html");
  remove_all(out_ + "/report.html");
  run_ok({"report", out_});
  EXPECT_EQ(read_file(out_ + "/report.html"), before);
  // A report of a single run.
  run_ok({"report", out_ + "/one"});
  EXPECT_TRUE(file_exists(out_ + "/one/report.html"));

  const auto nothing = tandem_run({"report", scratch_ / "nothing"});
  expect_exit(nothing, 1, {"metrics.jsonl"});
  replace_file(out_ + "/table.json", "{\"rows\": 3}");
  const auto broken = tandem_run({"report", out_});
  expect_exit(broken, 1, {"has no rows"});
}

TEST_F(Compare, ChartsDrawEveryRowOfTheMetrics) {
  // A name with HTML must stay a text.
  recipe("a<b>&", "nproc = 2\nrank_type = \"thread\"\n");
  const std::vector<std::string> names = {"one", "two", "a<b>&"};
  checked(compare(names));
  const auto count = [&](const std::string& name, const char* kind, const char* key) {
    return static_cast<int64_t>(numbers_of(out_ + "/" + name, kind, key).size());
  };
  int64_t train_rows = 0;
  int64_t test_rows = 0;
  for (const auto& name : names) {
    train_rows += count(name, "train", "loss");
    test_rows += count(name, "test", "test_loss");
  }
  EXPECT_EQ(test_rows, 6);
  const auto html = read_file(out_ + "/report.html");
  EXPECT_THAT(html, AllOf(HasSubstr("a&lt;b&gt;&amp;"), Not(HasSubstr("<td>a<b>"))));
  const auto charts = charts_in(html);
  for (const char* x : {"samples", "seconds"}) {
    for (const char* kind : {"loss-", "lr-"}) {
      EXPECT_EQ(count_in_chart(charts, std::string(kind) + x, "points"), train_rows);
    }
    for (const char* kind : {"accuracy-", "test-loss-"}) {
      EXPECT_EQ(count_in_chart(charts, std::string(kind) + x, "points"), test_rows);
    }
  }
  for (const char* bars : {"seconds", "rate", "bytes", "exposed", "memory"}) {
    EXPECT_EQ(count_in_chart(charts, bars, "value"), 3) << bars;
  }
  // Figures of tutorials: 52.3 s and 91.3 s among the bars, 99.24 % on the curve.
  EXPECT_EQ(count_in_chart(charts, "seconds", "tutorial"), 2);
  EXPECT_EQ(count_in_chart(charts, "accuracy-seconds", "tutorial"), 1);
  EXPECT_THAT(html, HasSubstr("nproc = 2, rank_type = &quot;thread&quot;"));
  EXPECT_THAT(html, testing::ContainsRegex("<td>20..-..-.. ..:.. UTC</td>"));
}

}  // namespace tandem::compare_test

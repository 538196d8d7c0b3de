// Projects that use an installed tandem, and examples.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "program.h"

namespace tandem::install_test {

using testing::HasSubstr;
using testing::Not;

// An installation in "prefix" and projects of users.
class Install : public testing::Test {
 protected:
  void SetUp() override {
    checked(run_command({"cmake", "--install", binary_dir(), "--prefix", prefix_}));
  }
  // Returns the folder of the project's programs. `found`: CMake's flag that finds
  // tandem.
  std::string build(const std::string& source, const std::string& found) const {
    const auto build = scratch_ / "build";
    checked(run_command(
        {"cmake", "-G", "Ninja", "-S", source, "-B", build, found,
         "-DCMAKE_CXX_COMPILER_LAUNCHER=", "-DCMAKE_CXX_FLAGS_RELEASE=-O0"}));
    checked(run_command({"cmake", "--build", build}));
    return build;
  }
  // A copy of an example, which loads no libraries that it does not use.
  std::string copy(const std::string& example) const {
    const auto source = scratch_ / example;
    std::filesystem::copy(source_dir() + "/examples/" + example, source);
    std::ofstream(source + "/CMakeLists.txt", std::ios::app)
        << "tandem_skip_unused(" << example << ")\n";
    return source;
  }

  const Scratch scratch_;
  const std::string prefix_ = scratch_ / "prefix";
};

TEST_F(Install, ACopyOfAnExampleBuildsAgainstTheInstallation) {
  const auto launch =
      build(copy("launch"), "-DCMAKE_PREFIX_PATH=" + prefix_) + "/launch";
  EXPECT_THAT(run_command({"ldd", launch}).output, Not(HasSubstr("libgdal")));
  const auto run = checked(
      run_command({prefix_ + "/bin/tandem", "launch", "--nproc_per_node=4", launch}));
  EXPECT_THAT(run.output, HasSubstr("[rank 3] Epoch: 9, Loss: "));
}

TEST_F(Install, ACopyOfAnExampleBuildsAgainstABuildTree) {
  const auto spawn = build(copy("spawn"), "-Dtandem_DIR=" + binary_dir()) + "/spawn";
  EXPECT_THAT(run_command({"ldd", spawn}).output, Not(HasSubstr("libgdal")));
  const auto run = checked(run_command({spawn, "3"}));
  EXPECT_THAT(run.output, testing::EndsWith("3 ranks have ended\n"));
}

CommandResult launch_example(
    int ranks, const std::string& name, const Arguments& arguments = {}) {
  return tandem_run(with(
      {"launch", "--nproc-per-node", std::to_string(ranks), program(name)}, arguments));
}

TEST(Examples, HelloRanksPrintsTheSum) {
  const auto run = checked(launch_example(4, "hello_ranks"));
  EXPECT_THAT(run.output, HasSubstr("1 + ... + 4 = 10"));
}

TEST(Examples, OwnLoopEndsWithEqualWeightsOnAllRanks) {
  const auto run = checked(launch_example(3, "own_loop", {"1", "6400"}));
  const auto weights_of = [&](const std::string& rank) {
    const std::string mark = "[rank " + rank + "] weights ";
    const size_t at = run.output.find(mark);
    return at == std::string::npos ? "none " + rank
                                   : run.output.substr(at + mark.size(), 64);
  };
  EXPECT_EQ(weights_of("0"), weights_of("1"));
  EXPECT_EQ(weights_of("0"), weights_of("2"));
}

// The two programs of tutorial 002 print ten lines of each rank, whose losses are of
// different data, and equal weights.
void expect_tutorial_002(const CommandResult& run, size_t ranks) {
  checked(run);
  const auto losses = lines_after(run.output, "Epoch: 9, Loss: ");
  EXPECT_EQ(losses.size(), ranks);
  EXPECT_EQ(std::set<std::string>(losses.begin(), losses.end()).size(), ranks);
  EXPECT_EQ(lines_after(run.output, "Epoch: ").size(), 10 * ranks);
  const auto weights = lines_after(run.output, "weights ");
  EXPECT_EQ(weights.size(), ranks);
  EXPECT_EQ(std::set<std::string>(weights.begin(), weights.end()).size(), 1u);
}

TEST(Examples, LaunchTrainsUnderALauncher) {
  expect_tutorial_002(launch_example(4, "launch"), 4);
}

TEST(Examples, SpawnStartsItsOwnRanks) {
  const auto run = run_command({program("spawn"), "3"});
  expect_tutorial_002(run, 3);
  EXPECT_THAT(run.output, testing::EndsWith("3 ranks have ended\n"));
}

// --- tutorial 003's look at gradients ---

std::vector<double> numbers_of(const std::string& line) {
  std::istringstream words(line);
  std::vector<double> numbers;
  for (std::string word; words >> word;) {
    char* end = nullptr;
    const double number = std::strtod(word.c_str(), &end);
    if (*end == '\0') {
      numbers.push_back(number);
    }
  }
  return numbers;
}

// A block of the output: the values of each rank, and their printed difference.
struct Shown {
  std::vector<std::vector<double>> of_ranks;
  double difference = -1;
};

Shown shown(const std::string& output, const std::string& title) {
  const size_t begin = output.find("\n" + title + "\n");
  EXPECT_NE(begin, std::string::npos) << title;
  const auto block = output.substr(begin + 1, output.find("\n\n", begin + 1) - begin);
  Shown found;
  for (const auto& line : lines_after(block, "rank ")) {
    if (line.find(':') == 1) {
      found.of_ranks.push_back(numbers_of(line.substr(2)));
      EXPECT_EQ(found.of_ranks.back().size(), 5u) << line;
    }
  }
  found.difference = numbers_of(lines_after(block, "largest difference: ").at(0)).at(0);
  return found;
}

void expect_equal_ranks(const Shown& shown) {
  ASSERT_EQ(shown.of_ranks.size(), 3u);
  EXPECT_EQ(shown.of_ranks[1], shown.of_ranks[0]);
  EXPECT_EQ(shown.of_ranks[2], shown.of_ranks[0]);
  EXPECT_EQ(shown.difference, 0);
}

void expect_means(const Shown& after, const Shown& before) {
  expect_equal_ranks(after);
  ASSERT_EQ(before.of_ranks.size(), 3u);
  EXPECT_GT(before.difference, 1e-4);
  EXPECT_NE(before.of_ranks[1], before.of_ranks[0]);
  EXPECT_NE(before.of_ranks[2], before.of_ranks[0]);
  EXPECT_NE(before.of_ranks[2], before.of_ranks[1]);
  // Four values, and their norm, which is not averaged.
  for (size_t i = 0; i < 4; ++i) {
    const double sum =
        before.of_ranks[0][i] + before.of_ranks[1][i] + before.of_ranks[2][i];
    EXPECT_NEAR(after.of_ranks[0][i], sum / 3, 1e-8) << i;
  }
}

TEST(Examples, GradientsDifferBeforeTheExchangeAndNotAfterIt) {
  const auto run = checked(run_command({program("look_at_gradients"), "3"}));
  const auto& output = run.output;
  expect_parts(
      output, {"before backward: .grad is None: True, shape 32 1 3 3",
               "after backward: .grad is None: False, shape 32 1 3 3"});
  const auto before = shown(output, "gradients before the exchange");
  const auto after = shown(output, "gradients after average_gradients");
  expect_means(after, before);
  const auto weights = shown(output, "parameters before the step");
  const auto stepped = shown(output, "parameters after the step");
  expect_equal_ranks(weights);
  expect_equal_ranks(stepped);
  for (size_t i = 0; i < 4; ++i) {
    const double step = -0.1 * after.of_ranks[0][i];
    EXPECT_NEAR(stepped.of_ranks[0][i] - weights.of_ranks[0][i], step, 3e-8) << i;
  }
  const std::string ddp = "DistributedDataParallel: ";
  const auto alone = shown(output, ddp + "gradients under no_sync()");
  EXPECT_EQ(alone.of_ranks, before.of_ranks);
  expect_means(shown(output, ddp + "gradients after backward"), alone);
  expect_equal_ranks(shown(output, ddp + "parameters after the step"));
  const auto apart = numbers_of(lines_after(output, "gradients differ by ").at(0));
  EXPECT_LT(apart.at(0), 1e-7);
  EXPECT_LT(std::abs(apart.at(1)), 1e-6);
}

TEST(Examples, CustomModelLearns) {
  const auto run = checked(launch_example(2, "custom_model"));
  expect_parts(run.output, {"custom (6386 parameters)", "rank 1: 9"});  // 90 % and more
}

TEST(Examples, RanksRequestAServiceFromAnotherRank) {
  const auto run = checked(launch_example(3, "rpc"));
  for (const char* line :
       {"[rank 0] served 4 requests\n",
        "[rank 1] the squares of 10, 11, 12 are 100, 121, 144\n",
        "[rank 1] the squares of 11, 12, 13 are 121, 144, 169\n",
        "[rank 2] the squares of 20, 21, 22 are 400, 441, 484\n"}) {
    EXPECT_THAT(run.output, HasSubstr(line));
  }
}

TEST(Examples, AnObserverEndsTheRunAndTheProgramEvaluatesTheBest) {
  const Scratch scratch;
  const auto run = checked(launch_example(3, "observer", {scratch / "run"}));
  expect_parts(
      run.output,
      {"rank 2, epoch 1: loss", "saved " + scratch / "run/checkpoints/step-"});
  EXPECT_EQ(lines_after(run.output, "ended by observer").size(), 3u);
  const auto evaluated = checked(
      run_command({program("observer"), "--eval", scratch / "run/checkpoints/best"}));
  EXPECT_THAT(evaluated.output, HasSubstr("checkpoints/best: 9"));  // 92 % and more
}

}  // namespace tandem::install_test

// Recipes print the lines of the tutorials' programs in the same places, with PyTorch's
// losses. benchmarks/peers/tutorials has the programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "tests/parity/python.h"

namespace tandem::tutorials_test {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

// --- against PyTorch ---

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// `limit` and `epochs` are large enough for lines after the first batch.
struct Tutorial {
  std::string name;
  std::string limit;
  std::string epochs;
  std::string lines;
};

using tandem::operator<<;

void make_digits(const std::string& folder, const std::string& samples) {
  run_ok(
      {"data", "make", "digits", "--out", folder, "--train", samples, "--test", "100"});
}

CommandResult compare(
    const Tutorial& tutorial, const Scratch& scratch, const Arguments& flags = {}) {
  return run_python(with(
      {source_dir() + "/benchmarks/peers/tutorials/compare.py", "--tandem", program(),
       "--data", scratch / "digits", "--keep", scratch / "kept", "--epochs",
       tutorial.epochs, "--limit", tutorial.limit, tutorial.name, "--"},
      flags));
}

class Tutorials : public testing::TestWithParam<Tutorial> {
 protected:
  void SetUp() override {
    TANDEM_NEEDS_PYTHON_TORCH();
    make_digits(scratch_ / "digits", GetParam().limit);
  }

  Scratch scratch_;
};

TEST_P(Tutorials, PrintPyTorchsLossesToAllDigits) {
  const auto result = checked(compare(GetParam(), scratch_));
  EXPECT_THAT(
      result.output,
      HasSubstr(
          GetParam().name + ": " + GetParam().lines + " lines of PyTorch, " +
          GetParam().lines + " of tandem, 0 differ\n"));
}

INSTANTIATE_TEST_SUITE_P(
    Peers, Tutorials,
    testing::Values(
        // Batches 0 and 10, of 12.
        Tutorial{"single-process", "1500", "2", "4"},
        // Four ranks, batches 0 and 100, of 101.
        Tutorial{"ddp-linear", "25700", "3", "24"},
        // Two ranks, batches 0 and 10, of 11; a test after the epoch.
        Tutorial{"ddp-manual", "1408", "1", "5"}),
    [](const auto& test) { return with_underscores(test.param.name); });

TEST(TutorialsCompared, FindsAnotherOrderInTheSecondEpoch) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const Scratch scratch;
  make_digits(scratch / "digits", "1000");
  const Tutorial tutorial{"ddp-linear", "1000", "2", ""};
  const auto result = compare(tutorial, scratch, {"--reshuffle"});
  EXPECT_EQ(result.status.code, 1) << result.errors;
  EXPECT_THAT(
      result.output,
      AllOf(
          HasSubstr("ddp-linear: 8 lines of PyTorch, 8 of tandem, 4 differ\n"),
          HasSubstr("ddp-linear: - Rank: 0, Epoch: 1, Batch: 0, Loss: "),
          Not(HasSubstr("Epoch: 0"))));
}

// --- one batch, divided ---

std::vector<double> losses_of(const std::string& output) {
  const std::string mark = "  loss ";
  std::vector<double> losses;
  for (size_t at = output.find(mark); at != std::string::npos;
       at = output.find(mark, at + 1)) {
    losses.push_back(std::atof(&output[at + mark.size()]));
  }
  return losses;
}

// 200 samples are three batches of 64 and one of 8 for any number of replicas.
TEST(DataParallelRecipe, LossesDoNotDependOnTheNumberOfReplicas) {
  std::vector<double> of_one;
  for (const std::string ranks : {"1", "2", "3", "4"}) {
    const auto result = run_ok(
        {"train", recipe_file("data-parallel-module"), "--data", "digits", "--limit",
         "200", "--log-every", "1", "--precision", "fp64", "--log-line",
         "epoch  loss {loss:.17g}", "--nproc", ranks});
    EXPECT_THAT(result.output, HasSubstr("200 samples, batch 64 / " + ranks + ", "));
    const auto losses = losses_of(result.output);
    ASSERT_EQ(losses.size(), 4u) << result.output;
    of_one = of_one.empty() ? losses : of_one;
    for (size_t step = 0; step < 4; ++step) {
      EXPECT_NEAR(losses[step], of_one[step], 1e-12) << ranks << ", " << step;
    }
  }
}

// As init_process of tutorial 003 does.
TEST(TutorialLines, RanksPrintMasterAddressAndPortBeforeTheyMeet) {
  const auto result = run_ok(
      {"train", recipe_file("ddp-manual"), "--data", "digits", "--nproc", "3",
       "--limit", "192", "--epochs", "1"});
  EXPECT_THAT(
      result.output, ContainsRegex("MASTER_ADDR:  127.0.0.1\nMASTER_PORT:  [0-9]+\n"));
  for (const std::string rank : {"0", "1", "2"}) {
    const std::string start = "Starting init process group. Current rank:  " + rank;
    const std::string end = "Finished init process group. Current rank:  " + rank;
    expect_parts(result.output, {start, end});
    EXPECT_LT(result.output.find(start), result.output.find(end));
  }
}

struct Meeting {
  const char* name;
  Variables variables;
  const char* lines;
};

class MasterAddress : public testing::TestWithParam<Meeting> {};

// As init_process of tutorial 003, which sets variables that the launcher does not set.
TEST_P(MasterAddress, IsPrintedInJoinLine) {
  const auto result = run_ok(
      {"train", recipe_file("ddp-manual"), "--data", "digits", "--nproc", "1",
       "--limit", "64", "--epochs", "1"},
      GetParam().variables);
  EXPECT_THAT(result.output, testing::StartsWith(GetParam().lines));
}

INSTANTIATE_TEST_SUITE_P(
    Variables, MasterAddress,
    testing::Values(
        Meeting{
            "rank_and_world_size",
            {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
            "MASTER_ADDR:  127.0.0.1\nMASTER_PORT:  29500\n"},
        Meeting{
            "all_four",
            {{"RANK", "0"},
             {"WORLD_SIZE", "1"},
             {"MASTER_ADDR", "localhost"},
             {"MASTER_PORT", "1234"}},
            "MASTER_ADDR:  localhost\nMASTER_PORT:  1234\n"},
        Meeting{"none", {}, "MASTER_ADDR:  127.0.0.1\nMASTER_PORT:  29500\n"}),
    testing::PrintToStringParamName());

// The first cells of tutorial 002.
TEST(TutorialLines, DataParallelPrintsItsDevice) {
  const auto result = run_ok(
      {"train", recipe_file("data-parallel-module"), "--data", "digits", "--limit",
       "128"});
  EXPECT_THAT(result.output, HasSubstr("device: cpu\nNumber of GPUs available: 0\n"));
}

// --- the places of lines ---

struct Places {
  // Name of the recipe.
  std::string name;
  Arguments flags;
  // Beginnings of lines, up to the loss; sorted.
  std::vector<std::string> lines;
};

std::vector<std::string> before_losses(const std::string& output) {
  std::vector<std::string> found;
  for (const auto& line : sorted_lines(output)) {
    const size_t at = line.find("oss: ");
    if (at != std::string::npos && line.find("Test set") == std::string::npos) {
      found.push_back(line.substr(0, at + 4));
    }
  }
  return found;
}

class Lines : public testing::TestWithParam<Places> {};

TEST_P(Lines, AreInTheTutorialsPlaces) {
  const auto result = run_ok(with(
      {"train", recipe_file(GetParam().name), "--data", "digits"}, GetParam().flags));
  EXPECT_THAT(before_losses(result.output), ElementsAreArray(GetParam().lines));
}

INSTANTIATE_TEST_SUITE_P(
    Tutorials, Lines,
    testing::Values(
        Places{
            "gloo-machines",
            {"--nproc", "3", "--limit", "4224"},
            {"epoch: 0 [0/11 (0%)]\t training loss:",
             "epoch: 0 [10/11 (91%)]\t training loss:"}},
        // The parameter server has no batches.
        Places{
            "parameter-server",
            {"--limit", "512", "--epochs", "2", "--log-every", "3"},
            {"Rank: 1, Epoch: 0, Batch: 0, Loss:", "Rank: 1, Epoch: 0, Batch: 3, Loss:",
             "Rank: 1, Epoch: 1, Batch: 0, Loss:", "Rank: 1, Epoch: 1, Batch: 3, Loss:",
             "Rank: 2, Epoch: 0, Batch: 0, Loss:", "Rank: 2, Epoch: 0, Batch: 3, Loss:",
             "Rank: 2, Epoch: 1, Batch: 0, Loss:",
             "Rank: 2, Epoch: 1, Batch: 3, Loss:"}},
        Places{
            "single-net",
            {"--limit", "704", "--epochs", "1"},
            {"Train Epoch: 1 [0/704 (0%)]\tLoss:",
             "Train Epoch: 1 [640/704 (91%)]\tLoss:"}},
        Places{
            "single-convnet",
            {"-n", "1", "-g", "1", "-nr", "0", "--limit", "700", "--log-every", "3"},
            {"Epoch [1/2], Step [3/7], Loss:", "Epoch [1/2], Step [6/7], Loss:",
             "Epoch [2/2], Step [3/7], Loss:", "Epoch [2/2], Step [6/7], Loss:"}},
        Places{
            "nodes-gpus",
            {"-g", "3", "--limit", "2100", "--log-every", "3"},
            {"Epoch [1/2], Step [3/7], Loss:", "Epoch [1/2], Step [6/7], Loss:",
             "Epoch [2/2], Step [3/7], Loss:", "Epoch [2/2], Step [6/7], Loss:"}},
        Places{
            "amp-fp16",
            {"-g", "3", "--limit", "1500", "--epochs", "1", "--log-every", "2"},
            {"Epoch [1/1], Step [2/5], Loss:", "Epoch [1/1], Step [4/5], Loss:"}}),
    [](const auto& test) { return with_underscores(test.param.name); });

}  // namespace tandem::tutorials_test

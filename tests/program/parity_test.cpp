// The real program and PyTorch on the same data, weights and order: the loss of every
// step. docs/about/numerics.md describes the comparison and its results.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "program.h"
#include "tests/parity/python.h"

namespace tandem::parity_test {

// 403 samples do not divide evenly among 2 ranks, and the 202 of a rank do not divide
// by its batch, so the last batch of each epoch is smaller. An epoch has 51 steps, and
// the learning rate falls after each epoch.
constexpr int kSamples = 403;
constexpr size_t kStepsPerEpoch = 51;

struct Training {
  std::string name;
  int world;
  std::string optimizer;
  std::string lr;
  std::string precision = "fp64";
  std::string reduction = "mean";
  // In float64 on a CPU, images of 28 x 28 take five times as long.
  int side = 14;
  size_t epochs = 4;
  std::string loss = "auto";
  // Further arguments of both programs.
  Arguments more = {};
};

using tandem::operator<<;

// Lines of peer.py: a loss and a learning rate.
struct Steps {
  std::vector<double> losses;
  std::vector<double> lrs;
};

Steps steps_of_lines(const std::string& text) {
  Steps steps;
  std::istringstream numbers(text);
  for (double loss = 0, lr = 0; numbers >> loss >> lr;) {
    steps.losses.push_back(loss);
    steps.lrs.push_back(lr);
  }
  return steps;
}

// Every second row and column of images of 28 x 28.
void halve_images(const std::string& path) {
  constexpr size_t kHeader = 16;
  constexpr size_t kSide = 28;
  const std::string whole = read_file(path);
  std::string half = whole.substr(0, kHeader);
  half[11] = half[15] = static_cast<char>(kSide / 2);
  for (size_t i = 0; i < whole.size() - kHeader; ++i) {
    if (i % 2 == 0 && i / kSide % 2 == 0) {
      half += whole[kHeader + i];
    }
  }
  replace_file(path, half);
}

void make_data(const Training& training, const Scratch& scratch) {
  const auto folder = scratch / "digits";
  run_ok(
      {"data", "make", "digits", "--out", folder, "--train", std::to_string(kSamples),
       "--test", "16"});
  if (training.side == 14) {
    halve_images(folder + "/train-images-idx3-ubyte");
    halve_images(folder + "/t10k-images-idx3-ubyte");
  }
}

// Arguments of both programs. The global batch is 8 for both numbers of ranks.
Arguments settings(const Training& training, const Scratch& scratch) {
  const Arguments both = {"--data",       scratch / "digits",
                          "--init",       scratch / "initial.pt",
                          "--optimizer",  training.optimizer,
                          "--lr",         training.lr,
                          "--batch-size", std::to_string(8 / training.world),
                          "--epochs",     std::to_string(training.epochs),
                          "--seed",       "3",
                          "--precision",  training.precision,
                          "--reduction",  training.reduction,
                          "--loss",       training.loss};
  return with(both, training.more);
}

// Writes the initial weights too.
std::vector<double> train_in_python(const Training& training, const Scratch& scratch) {
  auto command = with(
      {"train", "--world", std::to_string(training.world)},
      settings(training, scratch));
  // DistributedDataParallel averages gradients. For sums, the batches of all ranks go
  // through one process.
  if (training.reduction == "sum") {
    command.emplace_back("--one-process");
  }
  const auto result = checked(run_peer(command));
  return steps_of_lines(result.output).losses;
}

std::vector<double> train_here(
    const Training& training, const Scratch& scratch, const std::string& executor) {
  const auto out = scratch / executor;
  const Arguments sgd = {"--momentum", "0.9", "--weight-decay", "0.0005"};
  run_ok(
      with(
          {"train", "--nproc", std::to_string(training.world), "--model", "net",
           "--no-dropout", "--schedule", "step", "--gamma", "0.7", "--step-size", "1",
           "--log-every", "1", "--executor", executor, "--out", out},
          settings(training, scratch), training.optimizer == "sgd" ? sgd : Arguments()),
      {{"OMP_NUM_THREADS", "1"}});
  return numbers_of(out, "train", "loss");
}

double largest_relative_difference(
    const std::vector<double>& ours, const std::vector<double>& theirs, size_t steps) {
  double largest = 0;
  for (size_t i = 0; i < steps; ++i) {
    largest = std::max(largest, std::abs(ours[i] - theirs[i]) / std::abs(theirs[i]));
  }
  return largest;
}

double mean(const std::vector<double>& losses, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) {
    sum += losses[i];
  }
  return sum / static_cast<double>(end - begin);
}

class Parity : public testing::TestWithParam<Training> {
 protected:
  void SetUp() override {
    TANDEM_NEEDS_PYTHON_TORCH();
    make_data(GetParam(), scratch_);
    theirs_ = train_in_python(GetParam(), scratch_);
    ours_ = train_here(GetParam(), scratch_, "eager");
    ASSERT_EQ(theirs_.size(), kStepsPerEpoch * GetParam().epochs);
    ASSERT_EQ(ours_.size(), theirs_.size());
    // The losses must change during the run.
    const size_t end = theirs_.size();
    ASSERT_LT(mean(theirs_, end - 20, end), 0.8 * mean(theirs_, 0, 20));
  }

  Scratch scratch_;
  std::vector<double> ours_;
  std::vector<double> theirs_;
};

// A frozen convolution, and groups with factors 0.5 and 4 and 0, which overlap.
Training fine_tuning(int world, const std::string& optimizer, const std::string& lr) {
  Training training{
      "fine_tuning_" + std::to_string(world), world, optimizer, lr, "fp64"};
  training.more = {
      "--freeze",
      "conv1.*,conv2.bias",
      "--lr-factor",
      "conv2.weight=0.5,*.weight=1,fc?.bias=4",
      "--weight-decay-factor",
      "*.bias=0,fc*=2"};
  return training;
}

using ParityFloat64 = Parity;

TEST_P(ParityFloat64, EveryLossIsPyTorchs) {
  const double difference = largest_relative_difference(ours_, theirs_, theirs_.size());
  printf(
      "largest relative difference of %zu steps: %.2g\n", theirs_.size(), difference);
  EXPECT_LE(difference, 1e-9);
}

// Each optimizer, with one rank and with two.
INSTANTIATE_TEST_SUITE_P(
    Training, ParityFloat64,
    testing::Values(
        Training{"sgd_1", 1, "sgd", "0.02"}, Training{"sgd_2", 2, "sgd", "0.02"},
        Training{"adam_1", 1, "adam", "0.001"},
        Training{"adamw_1", 1, "adamw", "0.001"},
        Training{"adadelta_1", 1, "adadelta", "0.5"},
        Training{"sum_2", 2, "sgd", "0.0025", "fp64", "sum"},
        Training{"tutorial_003", 2, "adadelta", "1", "fp64", "mean", 28, 1},
        Training{
            "softmax_2", 2, "adam", "0.001", "fp64", "mean", 14, 4,
            "softmax_cross_entropy"},
        fine_tuning(1, "sgd", "0.02"), fine_tuning(2, "adamw", "0.001")),
    testing::PrintToStringParamName());

// Training options together: a schedule, label smoothing, an ignored class and a moving
// average, with accumulation. PyTorch's mean over the global batch is that of one
// process.
class ParityOptions : public testing::TestWithParam<int> {};

TEST_P(ParityOptions, LossesLearningRatesAndAveragesArePyTorchs) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const Scratch scratch;
  Training training{"options", GetParam(), "sgd", "0.02"};
  training.loss = "cross_entropy";
  training.epochs = 2;
  make_data(training, scratch);
  const auto both = with(
      settings(training, scratch),
      {"--accumulate", "2", "--schedule", "warmup_cosine", "--warmup-steps", "7",
       "--start-factor", "0.1", "--min-lr", "0.001", "--label-smoothing", "0.1",
       "--ignore-index", "3", "--ema-decay", "0.9"});
  const auto world = std::to_string(training.world);
  const auto peer = checked(run_peer(with(
      {"train", "--world", world, "--one-process", "--ema-out", scratch / "ema.pt"},
      both)));
  const auto theirs = steps_of_lines(peer.output);
  const auto out = scratch / "run";
  run_ok(
      with(
          {"train", "--nproc", world, "--model", "net", "--no-dropout", "--log-every",
           "1", "--executor", "eager", "--momentum", "0.9", "--weight-decay", "0.0005",
           "--out", out},
          both),
      {{"OMP_NUM_THREADS", "1"}});
  const auto losses = numbers_of(out, "train", "loss");
  const auto lrs = numbers_of(out, "train", "lr");
  const size_t steps = theirs.losses.size();
  ASSERT_GT(steps, 50u);
  ASSERT_EQ(losses.size(), steps);
  ASSERT_EQ(lrs.size(), steps);
  const double difference = largest_relative_difference(losses, theirs.losses, steps);
  printf("largest relative difference of %zu steps: %.2g\n", steps, difference);
  EXPECT_LE(difference, 1e-9);
  EXPECT_LE(largest_relative_difference(lrs, theirs.lrs, steps), 1e-9);
  run_ok(
      {"export", "--checkpoint", out, "--ema", "--out", scratch / "ema.safetensors"});
  checked(run_peer(
      {"same", "--first", scratch / "ema.safetensors", "--second", scratch / "ema.pt",
       "--tolerance", "1e-9"}));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ParityOptions, testing::Values(1, 3));

using ParityFloat32 = Parity;

// Rounding errors grow, so that runs with different orders of summation differ from
// some step on. Until then each loss is equal, and after that step training is as
// accurate.
void expect_as_accurate(
    const std::vector<double>& ours, const std::vector<double>& theirs,
    double tolerance) {
  const double first = largest_relative_difference(ours, theirs, 20);
  const double late = mean(ours, 150, 200) / mean(theirs, 150, 200) - 1;
  printf("largest relative difference of 20 steps: %.2g\n", first);
  printf("mean loss of steps 150 to 200: %+.2g relative\n", late);
  EXPECT_LE(first, tolerance);
  EXPECT_LE(std::abs(late), 0.02);
}

TEST_P(ParityFloat32, FirstLossesArePyTorchsAndTrainingIsAsAccurate) {
  expect_as_accurate(ours_, theirs_, 1e-4);
  SCOPED_TRACE("compiled");
  // Compiled layers add in another order, and use Winograd's transforms if the CPU has
  // AVX2. If a gradient is only rounding errors, Adam makes a whole step of it.
  const auto compiled = train_here(GetParam(), scratch_, "onednn");
  ASSERT_EQ(compiled.size(), theirs_.size());
  expect_as_accurate(compiled, theirs_, 1e-2);
}

Training float32(const std::string& optimizer, int world, const std::string& lr) {
  return {optimizer + "_" + std::to_string(world), world, optimizer, lr, "fp32"};
}

INSTANTIATE_TEST_SUITE_P(
    Training, ParityFloat32,
    testing::Values(
        float32("sgd", 1, "0.02"), float32("adam", 2, "0.001"),
        float32("adamw", 2, "0.001"), float32("adadelta", 2, "0.5")),
    testing::PrintToStringParamName());

}  // namespace tandem::parity_test

// The difficulty of the generated digits, and training on MNIST.

#include <gtest/gtest.h>

#include "program.h"
#include "tandem/base/rank_env.h"

namespace tandem::accuracy_test {

double accuracy_of(const Arguments& flags) {
  const Scratch scratch;
  run_ok(with({"train", "--out", scratch / "run"}, flags));
  return json_number(scratch / "run/summary.json", "test_accuracy");
}

TEST(Digits, CannotBeLearnedByALinearModel) {
  const double accuracy = accuracy_of(
      {"--model", "simplenet", "--epochs", "5", "--optimizer", "sgd", "--lr", "0.01"});
  EXPECT_LE(accuracy, 92);
  EXPECT_GE(accuracy, 70);
}

TEST(Digits, AreLearnedByAConvolutionalModelInOneEpoch) {
  EXPECT_GE(accuracy_of({"--model", "convnet", "--nproc", "2", "--lr", "1.0"}), 97);
}

TEST(Mnist, TrainsOnTwoRanks) {
  const auto root = get_env("TANDEM_DATA").value_or("");
  if (!file_exists(root + "/mnist/train-images-idx3-ubyte.gz") &&
      !file_exists(root + "/train-images-idx3-ubyte.gz")) {
    GTEST_SKIP()
        << "no MNIST; TANDEM_DATA=DIR scripts/test -R Mnist, with it in DIR/mnist";
  }
  // A quarter of an epoch.
  EXPECT_GE(
      accuracy_of(
          {source_dir() + "/recipes/ddp.toml", "--epochs", "1", "--limit", "16000"}),
      94);
}

}  // namespace tandem::accuracy_test

// A small GPT on a text of Debian, as nanoGPT trains it (tests/parity/gpt_peer.py).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "program.h"
#include "tandem/base/files.h"
#include "tests/parity/onnx_python.h"

namespace tandem::text_parity_test {

using nlohmann::json;

// Package base-files.
constexpr const char* kText = "/usr/share/common-licenses/GPL-3";
// 1098 samples of 32 bytes, of which 110 are the test part, are 83 steps of 12 samples.
const Arguments kSizes = {"layers=2", "width=32", "heads=2", "block=32"};
constexpr int kStepsOfEpoch = 83;
constexpr int kEpochs = 2;

class TextParity : public testing::Test {
 protected:
  void SetUp() override {
    TANDEM_NEEDS_ONNX_RUNTIME();
    if (!file_exists(kText)) {
      GTEST_SKIP() << "no " << kText << "; apt-get install base-files";
    }
    std::filesystem::copy_file(kText, text_);
  }

  void export_network(const Arguments& more = {}) const {
    peer(with({"export", network_}, more));
  }

  std::string peer(const Arguments& arguments) const {
    const auto result = checked(run_onnx_python(
        with({"-B", source_dir() + "/tests/parity/gpt_peer.py"}, arguments, kSizes)));
    return result.output;
  }

  // Returns the directory of the run.
  std::string train(int ranks, int epochs, const Arguments& more) const {
    const std::string out =
        scratch_ / ("run" + std::to_string(ranks) + "-" + std::to_string(epochs));
    run_ok(with(
        {"train", "--model", network_, "--data", text_, "--block-size", "32",
         "--optimizer", "adamw", "--lr", "0.001", "--nproc", std::to_string(ranks),
         "--epochs", std::to_string(epochs), "--out", out},
        more));
    return out;
  }

  // Trains with 12 samples in a step.
  std::string train(int ranks, int epochs) const {
    return train(ranks, epochs, {"--batch-size", std::to_string(12 / ranks)});
  }

  const Scratch scratch_;
  const std::string text_ = scratch_ / "text.txt";
  const std::string network_ = scratch_ / "gpt.pt2";
};

double loss_of(const std::string& run) {
  return json_number(run + "/summary.json", "test_loss");
}

// A resumed run has the same bits, and exports have the loss of the run.
TEST_F(TextParity, TestLossIsThatOfPyTorchWithOtherSeeds) {
  export_network();
  const auto theirs = json::parse(
      peer({"train", text_, std::to_string(kEpochs * kStepsOfEpoch), "1", "2", "3"}));
  std::vector<double> losses;
  for (const auto& seed : theirs) {
    losses.push_back(seed["test"]);
  }
  const auto [least, most] = std::minmax_element(losses.begin(), losses.end());
  // Every second seed is outside of the range of three seeds.
  const double range = *most - *least;
  for (const int ranks : {1, 2, 3}) {
    const double loss = loss_of(train(ranks, kEpochs));
    EXPECT_GE(loss, *least - range) << theirs;
    EXPECT_LE(loss, *most + range) << theirs;
  }

  const std::string whole = scratch_ / "run3-2";
  const std::string resumed = train(3, 1);
  run_ok({"train", "--resume", "auto", "--out", resumed, "--epochs", "2"});
  EXPECT_EQ(hash_of(resumed), hash_of(whole));
  Arguments evaluate = {"evaluate", text_};
  for (const char* format : {"trained.pt2", "trained.onnx"}) {
    run_ok({"export", "--checkpoint", whole, "--out", scratch_ / format});
    evaluate.push_back(scratch_ / format);
  }
  for (const auto& loss : json::parse(peer(evaluate))) {
    EXPECT_NEAR(loss.get<double>(), loss_of(whole), 1e-5);
  }
}

TEST_F(TextParity, APipelineOf3StagesHasTheLossOfOneRank) {
  // Two stages cannot share a parameter.
  export_network({"tied=0"});
  const Arguments steps = {"--batch-size", "4",   "--accumulate", "3",
                           "--precision",  "fp64"};
  const double loss = loss_of(train(1, 1, steps));
  const Arguments pipeline = {"--strategy", "pipeline", "--stages", "3"};
  EXPECT_NEAR(loss_of(train(3, 1, with(pipeline, steps))), loss, 1e-9);
}

}  // namespace tandem::text_parity_test

// Samples that are no images: tables, 300 classes and several labels per sample.
// Losses, predictions and exports equal those of PyTorch
// (tests/parity/samples_peer.py).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"
#include "tandem/base/files.h"
#include "tests/parity/onnx_python.h"

namespace tandem::samples_parity_test {

using nlohmann::json;

struct Case {
  std::string name;
  Arguments data;
  // Key of the metric in summary.json.
  std::string metric;
};
const std::vector<Case> kCases = {
    {"mse", {"table", "--target", "price"}, "test_mae"},
    {"l1", {"table", "--target", "price", "--loss", "l1"}, "test_mae"},
    {"classes", {"classes.npz"}, "test_accuracy"},
    {"bce", {"labels", "--loss", "bce"}, "test_accuracy"}};

class SamplesParity : public testing::Test {
 protected:
  void SetUp() override {
    TANDEM_NEEDS_ONNX_RUNTIME();
    peer("make");
  }

  // Returns the output of the peer, which is JSON or empty.
  std::string peer(const std::string& action) const {
    const auto result = checked(run_onnx_python(
        {"-B", source_dir() + "/tests/parity/samples_peer.py", action,
         scratch_.path()}));
    return result.output;
  }

  // Returns the settings of the model and of the data.
  Arguments settings_of(const Case& which) const {
    return with(
        {"--model", scratch_ / (which.name + ".pt2"), "--data",
         scratch_ / which.data[0]},
        Arguments(which.data.begin() + 1, which.data.end()));
  }

  // Trains a case with 30 samples in a step. Returns the directory of the run.
  std::string train(const Case& which, int ranks, int epochs) const {
    const std::string out =
        scratch_ / (which.name + std::to_string(ranks) + "-" + std::to_string(epochs));
    run_ok(with(
        {"train"}, settings_of(which),
        {"--precision", "fp64", "--optimizer", "adam", "--lr", "0.01", "--seed", "4",
         "--nproc", std::to_string(ranks), "--batch-size", std::to_string(30 / ranks),
         "--epochs", std::to_string(epochs), "--log-every", "1", "--out", out}));
    return out;
  }

  const Scratch scratch_;
};

void expect_losses(const std::string& run, const Case& which, const json& theirs) {
  constexpr double kTolerance = 1e-9;
  EXPECT_THAT(
      numbers_of(run, "train", "loss"),
      testing::Pointwise(
          testing::DoubleNear(kTolerance),
          theirs["losses"].get<std::vector<double>>()));
  const std::string summary = run + "/summary.json";
  EXPECT_NEAR(
      json_number(summary, "test_loss"), theirs["test_loss"].get<double>(), kTolerance);
  EXPECT_NEAR(
      json_number(summary, which.metric), theirs["metric"].get<double>(), kTolerance);
}

TEST_F(SamplesParity, LossesPredictionsAndExportsEqualThoseOfPyTorch) {
  const auto trained = json::parse(peer("train"));
  for (const auto& which : kCases) {
    SCOPED_TRACE(which.name);
    for (const int ranks : {1, 3}) {
      expect_losses(train(which, ranks, 3), which, trained.at(which.name));
    }
    const std::string whole = scratch_ / (which.name + "3-3");
    run_ok(
        {"predict", "--checkpoint", whole, "--out", scratch_ / (which.name + ".csv")});
    for (const char* format : {".out.pt2", ".out.onnx", ".out.safetensors"}) {
      run_ok(
          {"export", "--checkpoint", whole, "--out", scratch_ / (which.name + format)});
    }
  }
  const auto& labels = kCases.back();
  const std::string resumed = train(labels, 3, 1);
  run_ok({"train", "--resume", "auto", "--out", resumed, "--epochs", "3"});
  EXPECT_EQ(hash_of(resumed), hash_of(scratch_ / (labels.name + "3-3")));
  run_ok(with({"bench", "step", "--steps", "2"}, settings_of(labels)));
  const auto differences = json::parse(peer("compare"));
  ASSERT_EQ(differences.size(), kCases.size());
  for (const auto& [name, difference] : differences.items()) {
    EXPECT_LE(difference.get<double>(), 1e-5) << name;
  }
}

}  // namespace tandem::samples_parity_test

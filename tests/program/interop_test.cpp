// Weights that a user moves between the real program and PyTorch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "program.h"
#include "tests/parity/python.h"

namespace tandem::interop_test {

using testing::HasSubstr;

class InteropProgram : public testing::Test {
 protected:
  void SetUp() override {
    TANDEM_NEEDS_PYTHON_TORCH();
    run_ok(
        {"data", "make", "digits", "--out", data_, "--train", "640", "--test", "500"});
  }

  Arguments evaluation(const std::string& weights) const {
    return {"evaluate", "--data", data_, "--weights", weights};
  }

  std::string tandem_says(const Arguments& arguments) {
    const auto result = run_ok(arguments);
    const size_t begin = result.output.rfind("Average loss");
    return result.output.substr(begin, result.output.find(" (", begin) - begin);
  }

  Scratch scratch_;
  std::string data_ = scratch_ / "digits";
};

TEST_F(InteropProgram, CheckpointAndExportsHaveTheSameResultInPython) {
  const auto out = scratch_ / "run";
  run_ok({"train", "--data", data_, "--model", "net", "--nproc", "3", "--out", out});
  // Each rank has 214 samples, in batches of 64.
  const auto checkpoint = out + "/checkpoints/step-00000004";
  const auto model = checkpoint + "/model.safetensors";
  const auto ours = tandem_says({"eval", "--checkpoint", checkpoint});
  EXPECT_THAT(ours, HasSubstr("/500"));
  Arguments peer = evaluation(model);
  for (const char* name : {"net.pt", "net.safetensors"}) {
    SCOPED_TRACE(name);
    const auto file = scratch_ / name;
    const auto exported = run_ok({"export", "--checkpoint", checkpoint, "--out", file});
    EXPECT_THAT(exported.output, HasSubstr("8 tensors"));
    peer = with(
        peer, {"then", "same", "--first", file, "--second", model, "then"},
        evaluation(file));
    // And back to tandem.
    EXPECT_EQ(
        tandem_says({"train", "--data", data_, "--epochs", "0", "--init", file}), ours);
  }
  const std::string same = "8 tensors are the same\n";
  const auto says = ours + "\n";
  EXPECT_EQ(checked(run_peer(peer)).output, says + same + says + same + says);
}

TEST_F(InteropProgram, ShardsOfRanksHaveTheSameResultInPython) {
  const auto out = scratch_ / "run";
  run_ok(
      {"train", "--data", data_, "--model", "net", "--nproc", "3", "--shard",
       "parameters", "--out", out});
  const auto checkpoint = out + "/checkpoints/step-00000004";
  const auto ours = tandem_says({"eval", "--checkpoint", checkpoint});
  const auto peer = evaluation(checkpoint + "/model.safetensors.index.json");
  EXPECT_EQ(checked(run_peer(peer)).output, ours + "\n");
}

// A residual network with batch norm, trained by its own program.
TEST_F(InteropProgram, ExportOfACustomModelHasTheSameAccuracyInPython) {
  const auto out = scratch_ / "run";
  const auto recipe = scratch_ / "run.toml";
  replace_file(
      recipe,
      "data = \"" + data_ + "\"\nepochs = 6\nbatch_size = 16\nout = \"" + out + "\"\n");
  const auto trained =
      run_ok({"launch", "--nproc-per-node", "2", program("custom_model"), recipe});
  EXPECT_EQ(trained.errors.find("running statistics"), std::string::npos);
  const double accuracy = json_number(out + "/summary.json", "test_accuracy");
  EXPECT_GT(accuracy, 50);
  const auto right = std::to_string(std::lround(accuracy * 5)) + "/500";
  Arguments peer;
  for (const char* name : {"residual.pt", "residual.safetensors"}) {
    const auto file = scratch_ / name;
    const auto exported = run_ok({"export", "--checkpoint", out, "--out", file});
    // 5 convolutions, 5 batch norms with 5 tensors each, weight and bias.
    EXPECT_THAT(exported.output, HasSubstr("32 tensors"));
    peer = with(peer, evaluation(file), {"--model", "residual", "then"});
  }
  const auto theirs = checked(run_peer(peer));
  EXPECT_EQ(lines_with(theirs.output, "Accuracy: " + right).size(), 2u);
}

TEST_F(InteropProgram, WeightsOfPythonHaveTheSameResult) {
  const auto peer = checked(run_peer(with(
      {"save", "--out", scratch_ / ".", "then"}, evaluation(scratch_ / "state.pt"))));
  const auto theirs = peer.output.substr(0, peer.output.find('\n'));
  EXPECT_THAT(theirs, HasSubstr("/500"));
  for (const char* name : {"state.pt", "state.safetensors", "replica.pt", "shards"}) {
    EXPECT_EQ(
        tandem_says(
            {"train", "--data", data_, "--epochs", "0", "--init", scratch_ / name,
             "--seed", "8"}),
        theirs)
        << name;
  }
  EXPECT_EQ(
      tandem_says(
          {"train", "--data", data_, "--epochs", "0", "--init", scratch_ / "state.pt",
           "--nproc", "4"}),
      theirs);
}

TEST_F(InteropProgram, UnusableWeightsEndTheRunWithOneLine) {
  checked(run_peer({"save", "--out", scratch_ / "."}));
  replace_file(scratch_ / "text.pt", "not weights\n");
  struct Case {
    std::string model;
    std::string file;
    int code;
    std::string says;
  };
  const std::vector<Case> cases = {
      {"convnet", "state.pt", 2, "'cn1.weight'"},
      {"net", "module.pt", 1, "torch.save(model.state_dict(), path)"},
      {"net", "text.pt", 1, "is not a checkpoint"}};
  for (const auto& [model, file, code, says] : cases) {
    for (const char* ranks : {"1", "3"}) {
      const auto result = tandem_run(
          {"train", "--data", data_, "--model", model, "--init", scratch_ / file,
           "--nproc", ranks});
      expect_error_line(result, code, {says});
    }
  }
}

}  // namespace tandem::interop_test

// Runs that resume from damaged or mixed checkpoints.
// tests/checkpoint/checkpoint_damage_test.cpp damages every bit of one.

#include <gtest/gtest.h>

#include <functional>

#include "tests/program/program.h"

namespace tandem::damaged_checkpoint_test {

// Two epochs of 14 steps, with a file of each rank next to that of the model.
Arguments averaging(const std::string& out) {
  return with(
      {"train", "--strategy",   "averaging", "--model",    "convnet_bn", "--optimizer",
       "sgd",   "--lr",         "0.05",      "--momentum", "0.9",        "--limit",
       "320",   "--batch-size", "8",         "--epochs",   "2",          "--nproc",
       "3",     "--rank-type",  "thread",    "--share",    "scatter"},
      {"--average-every", "7", "--checkpoint-every", "9", "--resume", "auto",
       "--keep-checkpoints", "0", "--out", out});
}

class DamagedCheckpointRun : public testing::Test {
 protected:
  std::string run_to_end() {
    const auto result = run_ok(averaging(out_));
    errors_ = result.errors;
    return hash_of(out_);
  }

  // As if the run was killed after step 18.
  void go_back() const {
    for (const auto& name : list_directory(checkpoints_)) {
      if (name != "step-00000009" && name != "step-00000018") {
        remove_all(checkpoints_ + "/" + name);
      }
    }
  }

  Scratch scratch_;
  std::string out_ = scratch_ / "run";
  std::string checkpoints_ = out_ + "/checkpoints";
  std::string errors_;
};

TEST_F(DamagedCheckpointRun, ResumesFromTheCheckpointBeforeWithEqualBits) {
  const auto whole = run_to_end();
  const auto older = checkpoints_ + "/step-00000009/";
  const auto newer = checkpoints_ + "/step-00000018/";
  const std::string model = "model.safetensors";
  const std::string training = "training.safetensors";
  const std::string own = "rank-0001-of-0003.safetensors";
  const auto replace = [&](const std::string& name, const std::string& by) {
    replace_file(newer + name, read_file(by));
  };
  struct Damage {
    const char* said;
    std::function<void()> act;
  };
  const Damage damages[] = {
      {"", [] {}},
      {"its hash is missing",
       [&] {
         auto bytes = read_file(newer + model);
         bytes[bytes.find("sha256")] ^= 1;
         replace_file(newer + model, bytes);
       }},
      {"of two checkpoints", [&] { replace(model, older + model); }},
      {"of two checkpoints", [&] { replace(training, older + training); }},
      {"to another checkpoint", [&] { replace(own, older + own); }},
      {"or to another rank",
       [&] { replace(own, newer + "rank-0002-of-0003.safetensors"); }},
  };
  for (const auto& [said, act] : damages) {
    SCOPED_TRACE(said);
    go_back();
    act();
    EXPECT_EQ(run_to_end(), whole);
    expect_parts(
        errors_, {said, std::string(said).empty()
                            ? "resuming from " + checkpoints_ + "/step-00000018"
                            : "using the previous checkpoint"});
  }
}

}  // namespace tandem::damaged_checkpoint_test

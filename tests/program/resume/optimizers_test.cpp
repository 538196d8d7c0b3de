// Runs with each optimizer and schedule resume with the same bits.

#include <gtest/gtest.h>

#include <string>

#include "tests/program/resume/resumed_run.h"

namespace tandem::optimizers_test {

TEST(Resume, ContinuesEachOptimizerAndSchedule) {
  const Way ways[] = {
      {"adagrad", {"--schedule", "linear", "--end-factor", "0.5"}},
      {"rmsprop", {"--momentum", "0.9", "--centered", "--schedule", "exponential"}},
      {"adamax", {"--schedule", "polynomial"}},
      {"nadam", {"--schedule", "cosine_restarts", "--restart-epochs", "1"}},
      {"radam", {"--schedule", "multistep", "--milestones", "1"}},
      {"lion", {"--schedule", "warmup_stable_decay"}},
      {"lamb", {"--ema-decay", "0.5"}},
      {"adafactor", {}},
      {"muon", {"--weight-decay", "0.2"}}};
  for (const auto& [optimizer, flags] : ways) {
    SCOPED_TRACE(optimizer);
    const Scratch scratch;
    const auto out = scratch / "run";
    const auto run = with(
        {"train", "--model", "simplenet", "--limit", "128", "--epochs", "2", "--out",
         out, "--optimizer", optimizer, "--checkpoint-every", "1"},
        kKeepAll, flags);
    const auto whole = run_to_end(run, out);
    EXPECT_EQ(run_to_end(with(run, {"--resume", checkpoint(out, 1)}), out), whole);
  }
}

TEST(Resume, RefusesToShardAnOptimizerThatNeedsWholeTensors) {
  for (const char* shard : {"optimizer", "gradients", "parameters"}) {
    const auto result =
        tandem_run({"train", "--optimizer", "lamb", "--nproc", "2", "--shard", shard});
    EXPECT_EQ(result.status.code, 2);
    EXPECT_NE(
        result.errors.find(
            std::string("[config] shard is ") + shard +
            ", which divides parameter tensors among ranks, but optimizer lamb needs "
            "whole tensors; use --shard none, or change --optimizer"),
        std::string::npos)
        << result.errors;
  }
}

}  // namespace tandem::optimizers_test

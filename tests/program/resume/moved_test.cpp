// Runs that resume with another number of ranks.

#include <gtest/gtest.h>

#include <string>

#include "tests/program/resume/resumed_run.h"

namespace tandem::moved_test {

struct Move {
  const char* name;
  Arguments from;
  Arguments to;
  // Tolerance of the test loss. 0: equal bits, because a sum of two gradients does not
  // depend on the order, but a sum of more does. -1: the global batch differs, so only
  // the audit is checked.
  double tolerance;
};

using tandem::operator<<;

class MovedRun : public testing::TestWithParam<Move> {};

// In float64; the audit of each epoch shows that every remaining sample is read once.
TEST_P(MovedRun, ReadsTheRemainingSamplesOnce) {
  const Scratch scratch;
  const auto out = scratch / "run";
  const auto common = with(
      {"train", "--model", "net5x5", "--limit", "500", "--epochs", "2", "--precision",
       "fp64", "--schedule", "step", "--log-every", "1", "--checkpoint-every", "5"},
      {"--eval-batch-size", "100", "--keep-checkpoints", "0", "--out"});
  const auto whole = run_to_end(with(common, {out}, GetParam().from), out);
  const auto moved_out = scratch / "moved";
  run_ok(with(common, {moved_out, "--resume", checkpoint(out, 5)}, GetParam().to));
  const double tolerance = GetParam().tolerance;
  if (tolerance == 0) {
    EXPECT_EQ(hash_of(moved_out), whole);
  } else if (tolerance > 0) {
    const double loss = json_number(out + "/summary.json", "test_loss");
    EXPECT_NEAR(
        json_number(moved_out + "/summary.json", "test_loss"), loss, tolerance * loss);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Resume, MovedRun,
    testing::Values(
        Move{
            "two_ranks_to_one",
            {"--nproc", "2", "--batch-size", "32"},
            {"--nproc", "1", "--accumulate", "2"},
            0},
        Move{
            "one_rank_to_two",
            {"--accumulate", "2", "--batch-size", "32"},
            {"--nproc", "2", "--accumulate", "1"},
            0},
        Move{
            "two_ranks_to_four",
            {"--nproc", "2", "--batch-size", "32"},
            {"--nproc", "4", "--batch-size", "16"},
            1e-9},
        Move{
            "four_ranks_to_three",
            {"--nproc", "4", "--batch-size", "32"},
            {"--nproc", "3", "--batch-size", "32"},
            -1},
        Move{
            "three_ranks_to_two",
            {"--nproc", "3", "--batch-size", "32"},
            {"--nproc", "2", "--batch-size", "32"},
            -1}),
    testing::PrintToStringParamName());

}  // namespace tandem::moved_test

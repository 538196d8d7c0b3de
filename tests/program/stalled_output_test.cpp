// Runs whose output is not read when a signal stops them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <optional>

#include "tandem/checkpoint/checkpoint_names.h"
#include "tests/base/stalled_pipe.h"
#include "tests/program/bad_input/bad_input.h"

namespace tandem::stalled_output_test {

class StalledReader : public testing::TestWithParam<Way> {};

TEST_P(StalledReader, DoesNotPreventSavingAfterASignal) {
  const Stage stage;
  stage.data("data");
  const auto command = with(
      {"sh", "-c", "exec \"$@\" 2>&1", "sh", program()},
      {"train", "--data", stage / "data", "--model", "simplenet", "--epochs", "1000000",
       "--log-every", "1", "--batch-size", "8", "--out", stage / "run", "--eval-every",
       "1000000", "--grace-seconds", "60", "--checkpoint-every", "1000000"},
      GetParam().flags);
  Process run({command, {}, true});
  ASSERT_TRUE(fills_up(run.output_fd()));
  run.signal(SIGTERM);
  std::optional<ExitStatus> status;
  eventually([&] {
    status = run.poll();
    return status.has_value();
  });
  ASSERT_TRUE(status) << "still runs";
  EXPECT_EQ(status->describe(), "exited with code 75");
  EXPECT_NE(newest_checkpoint(stage / "run/checkpoints"), "");
}

INSTANTIATE_TEST_SUITE_P(
    Ways, StalledReader,
    testing::Values(
        Way{"OneRank", {}}, Way{"Threads", {"--nproc", "2", "--rank-type", "thread"}},
        Way{"Shm", {"--nproc", "2"}},
        Way{"AllRanksPrint", {"--nproc", "2", "--log-ranks", "all"}}),
    testing::PrintToStringParamName());

}  // namespace tandem::stalled_output_test

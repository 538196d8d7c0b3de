// Runs that resume with other threads or instruction sets.

#include "tandem/train/machine.h"

#include <gmock/gmock.h>

#include "tests/exec/threads.h"
#include "tests/scratch.h"
#include "tests/train/printed.h"

namespace tandem::machine_test {

using testing::HasSubstr;
using testing::Not;

TEST(Machine, NamesTheChangesThatMatterToTheExecutor) {
  const Machine earlier{"2", "AVX2 with kernels for AVX2"};
  EXPECT_EQ(machine_changes(earlier, earlier, true), "");
  EXPECT_EQ(machine_changes({}, earlier, true), "");
  const Machine now{"1", "DEFAULT with kernels for AVX2"};
  EXPECT_EQ(
      machine_changes(earlier, now, true),
      "1 thread instead of 2, instruction set DEFAULT with kernels for AVX2 instead of "
      "AVX2 with kernels for AVX2");
  EXPECT_THAT(machine_changes(earlier, now, false), Not(HasSubstr("thread")));
}

// Returns the log of a run of one epoch, or of its next epoch.
std::string log_of(const std::string& out, int threads, int64_t epochs) {
  const Threads on(threads);
  RunConfig config = small_config();
  config.ranks.nproc = 1;
  config.exec.executor = ExecutorKind::eager;
  config.output.out = out;
  config.output.resume = "auto";
  config.training.epochs = epochs;
  const DatasetSplits data{noise_images(64), noise_images(10)};
  const auto comm = make_single_communicator();
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  (void)train(config, data, *comm);
  testing::internal::GetCapturedStdout();
  return testing::internal::GetCapturedStderr();
}

TEST(Machine, ResumesWithOtherThreadsWithALine) {
  const Scratch scratch;
  (void)log_of(scratch / "run", 2, 1);
  const std::string line =
      "resuming with 1 thread instead of 2: results are close, not equal in bits";
  EXPECT_THAT(log_of(scratch / "run", 1, 2), HasSubstr(line));
  EXPECT_THAT(log_of(scratch / "run", 1, 3), Not(HasSubstr("instead of 2:")));
}

}  // namespace tandem::machine_test

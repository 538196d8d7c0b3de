// The real program on a disk that fails, and killed while it writes. tests/faults tests
// every operation; here, a launcher and process ranks.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tandem/checkpoint/checkpoint_names.h"
#include "tests/faults/file_faults.h"
#include "tests/program/resume/resumed_run.h"

namespace tandem::faulty_disk_test {

class FaultyDiskRun : public testing::Test {
 protected:
  FaultyDiskRun() {
    std::filesystem::create_symlink(
        binary_dir() + "/tests/libfile_faults.so", library_);
  }
  // The fault in the process of rank 0, which writes all checkpoints.
  CommandResult run(
      FaultKind kind, int64_t operation, const Arguments& more = {}) const {
    const Variables variables = {
        {"LD_PRELOAD", library_},
        {"TANDEM_FILE_FAULT", std::to_string(static_cast<int>(kind)) + " " +
                                  std::to_string(operation) + " " +
                                  std::to_string(EIO) + " " + out_ + "/checkpoints"}};
    return tandem_run(arguments(out_) + more, variables);
  }
  static Arguments arguments(const std::string& out) {
    return trained(out) + Arguments{"--nproc", "2", "--checkpoint-every", "4"};
  }
  // Results of a run without faults.
  static const std::string& whole() {
    static const std::string hash = [] {
      const Scratch scratch;
      return run_to_end(arguments(scratch / "whole"), scratch / "whole");
    }();
    return hash;
  }
  void expect_goes_on() const {
    EXPECT_EQ(run_to_end(arguments(out_) + kResume, out_), whole());
  }

  const Scratch scratch_;
  const std::string out_ = scratch_ / "run";
  // LD_PRELOAD separates names by spaces, and the path of the build may have one.
  const std::string library_ = scratch_ / "file_faults.so";
};

// In the second of several checkpoints.
constexpr int64_t kOperation = 60;

TEST_F(FaultyDiskRun, EndsWithFileAndReason) {
  const auto ended = run(FaultKind::fail, kOperation);
  expect_exit(
      ended, 1,
      {"error: rank 0 failed: [files] cannot ", out_ + "/checkpoints/",
       "Input/output error"});
  EXPECT_FALSE(newest_checkpoint(out_ + "/checkpoints").empty());
  expect_goes_on();
}

TEST_F(FaultyDiskRun, ContinuesWithAWarningWithOnSaveErrorWarn) {
  const auto ended =
      checked(run(FaultKind::fail, kOperation, {"--on-save-error", "warn"}));
  expect_parts(
      ended.errors,
      {"warning: the checkpoint of step ",
       " is missing, and the run continues: [files] cannot ", "Input/output error"});
  EXPECT_EQ(hash_of(out_), whole());
}

TEST_F(FaultyDiskRun, KilledDuringAWriteResumesWithEqualBits) {
  for (const auto kind : {FaultKind::tear, FaultKind::die}) {
    remove_all(out_);
    const auto ended = run(kind, kOperation);
    expect_exit(ended, 1, {"exited with code 99"});
    EXPECT_FALSE(newest_checkpoint(out_ + "/checkpoints").empty());
    expect_goes_on();
  }
}

}  // namespace tandem::faulty_disk_test

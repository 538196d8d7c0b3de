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
  // The fault in the process of one rank; each rank writes its share of a checkpoint.
  CommandResult run(
      FaultKind kind, int64_t operation, const Arguments& more = {},
      const std::string& rank = "0") const {
    const Variables variables = {
        {"LD_PRELOAD", library_},
        {"TANDEM_FAULT_RANK", rank},
        {"TANDEM_FILE_FAULT", std::to_string(static_cast<int>(kind)) + " " +
                                  std::to_string(operation) + " " +
                                  std::to_string(EIO) + " " + out_ + "/checkpoints"}};
    return tandem_run(with(arguments(out_), more), variables);
  }
  static Arguments arguments(const std::string& out) {
    return with(trained(out), {"--nproc", "2", "--checkpoint-every", "4"});
  }
  // Returns the hash of a run without faults.
  std::string undisturbed() const {
    return run_to_end(arguments(scratch_ / "whole"), scratch_ / "whole");
  }

  const Scratch scratch_;
  const std::string out_ = scratch_ / "run";
  // LD_PRELOAD separates names by spaces, and the path of the build may have one.
  const std::string library_ = scratch_ / "file_faults.so";
};

// In the second of several checkpoints.
constexpr int64_t kOperation = 60;

TEST_F(FaultyDiskRun, ResumesWithEqualBitsAfterAFault) {
  const auto whole = undisturbed();
  for (const auto kind : {FaultKind::fail, FaultKind::tear, FaultKind::die}) {
    remove_all(out_);
    const auto ended = run(kind, kOperation);
    if (kind == FaultKind::fail) {
      expect_exit(
          ended, 1,
          {"error: rank 0 failed: [files] cannot ", out_ + "/checkpoints/",
           "Input/output error"});
    } else {
      expect_exit(ended, 1, {"exited with code 99"});
    }
    EXPECT_FALSE(newest_checkpoint(out_ + "/checkpoints").empty());
    EXPECT_EQ(run_to_end(with(arguments(out_), kResume), out_), whole);
  }
}

TEST_F(FaultyDiskRun, ResumesWithEqualBitsAfterAFaultOfAnotherRank) {
  const auto whole = undisturbed();
  struct Case {
    FaultKind kind;
    std::string part;
  };
  for (const auto& [kind, part] :
       {Case{FaultKind::fail, "error: rank 1 failed: [files] cannot "},
        Case{FaultKind::full, "error: rank 1 failed: [files] cannot "},
        Case{FaultKind::tear, "exited with code 99"}}) {
    remove_all(out_);
    expect_exit(run(kind, kOperation / 2, {}, "1"), 1, {part});
    EXPECT_FALSE(newest_checkpoint(out_ + "/checkpoints").empty());
    EXPECT_EQ(run_to_end(with(arguments(out_), kResume), out_), whole);
  }
}

TEST_F(FaultyDiskRun, ContinuesWithAWarningOfAnotherRank) {
  const auto ended =
      checked(run(FaultKind::fail, kOperation / 2, {"--on-save-error", "warn"}, "1"));
  expect_parts(
      ended.errors,
      {"the checkpoint of step ", " is missing, and the run continues: [files] cannot ",
       "Input/output error"});
  EXPECT_EQ(hash_of(out_), undisturbed());
}

TEST_F(FaultyDiskRun, ContinuesWithAWarningWithOnSaveErrorWarn) {
  const auto ended =
      checked(run(FaultKind::fail, kOperation, {"--on-save-error", "warn"}));
  expect_parts(
      ended.errors,
      {"warning: the checkpoint of step ",
       " is missing, and the run continues: [files] cannot ", "Input/output error"});
  EXPECT_EQ(hash_of(out_), undisturbed());
}

}  // namespace tandem::faulty_disk_test

// Runs whose disk fails in each operation in turn, or which are killed in it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tests/faults/faulty_run.h"
#include "tests/named.h"

namespace tandem::faulty_disk_test {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

// Operation of a run that fails.
struct Where {
  const char* name;
  // Lowest number of tested operations that end the run when they fail.
  int least_ends;
  bool checkpoints;
  bool no_exchange = false;
};

using tandem::operator<<;

class FaultyDisk : public testing::TestWithParam<Where> {
 protected:
  FileFault fault_for(const std::string& out, FaultKind kind, int64_t operation) const {
    FileFault fault;
    fault.kind = kind;
    fault.operation = operation;
    fault.error = operation % 2 == 0 ? EIO : ENOSPC;
    fault.below = GetParam().checkpoints ? out + "/checkpoints" : out;
    fault.but_not_below = GetParam().checkpoints ? "" : out + "/checkpoints";
    fault.no_exchange = GetParam().no_exchange;
    return fault;
  }

  // Parameters of a run without faults.
  static const std::string& parameters() {
    static const std::string hash = [] {
      const Scratch scratch;
      return std::string(
          train_in_child(faulty_config(scratch / "run"), {}).left.parameters);
    }();
    return hash;
  }

  // Makes each operation of a run fail in turn, and resumes the run.
  void at_each_operation(
      FaultKind kind, const std::function<void(const Ended&, const FileFault&)>& check,
      OnSaveError on_error = OnSaveError::stop) {
    ASSERT_EQ(parameters().size(), 64u);
    const auto operations = operations_of(kind);
    ASSERT_FALSE(operations.empty());
    for (const int64_t operation : operations) {
      const Scratch scratch;
      auto config = faulty_config(scratch / "run");
      config.output.on_save_error = on_error;
      const auto fault = fault_for(config.output.out, kind, operation);
      SCOPED_TRACE(testing::Message() << "operation " << operation);
      const auto ended = train_in_child(config, fault);
      SCOPED_TRACE(ended.errors);
      check(ended, fault);
      expect_only_whole_checkpoints(config.output.out, ended);
      expect_goes_on(config, ended);
      if (HasFailure()) {
        return;
      }
    }
  }

  // Returns the numbers of a run's operations, without operations whose fault has the
  // same effect as a fault of another operation.
  std::vector<int64_t> operations_of(FaultKind kind) const {
    const Scratch scratch;
    const auto out = scratch / "run";
    const auto all =
        train_in_child(faulty_config(out), fault_for(out, FaultKind::none, 0)).left;
    const std::string kinds = all.kinds;
    EXPECT_EQ(static_cast<int64_t>(kinds.size()), all.operations);
    EXPECT_GT(all.operations, GetParam().checkpoints ? 100 : 10);
    EXPECT_EQ(all.before_exchange >= 0, GetParam().no_exchange);
    std::vector<int64_t> numbers;
    if (HasFailure()) {
      return numbers;
    }
    for (int64_t number = 1; number <= all.operations; ++number) {
      const char operation = kinds[static_cast<size_t>(number - 1)];
      // Before the first exchange, it does not matter whether exchanges work.
      const bool in_other_tests = number <= all.before_exchange;
      // A full disk has no effect on this operation, and fails the same later ones.
      const bool as_next = kind == FaultKind::full && operation == 'o';
      // A run killed in this operation leaves the files of a run killed before it.
      const bool as_killed = kind == FaultKind::tear && operation != 'w' && number > 1;
      if (!in_other_tests && !as_next && !as_killed) {
        numbers.push_back(number);
      }
    }
    return numbers;
  }

  static void expect_only_whole_checkpoints(
      const std::string& out, const Ended& ended) {
    const auto directory = out + "/checkpoints";
    testing::internal::CaptureStderr();
    const auto newest = newest_whole_checkpoint(directory);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    const auto all = checkpoints_in(directory);
    // Messages about checkpoints must be true.
    EXPECT_TRUE(ended.left.told_step < 0 || !newest.empty());
    EXPECT_GE(all.empty() ? -1 : all.rbegin()->first, ended.left.told_step);
    for (const auto& [step, path] : all) {
      CheckpointContent content;
      EXPECT_NO_THROW(load_model_state(path, nullptr)) << path;
      EXPECT_TRUE(file_exists(path + "/training.safetensors")) << path;
      EXPECT_TRUE(file_exists(path + "/rank-0000-of-0001.safetensors")) << path;
    }
  }

  static void expect_goes_on(RunConfig config, const Ended& before) {
    const std::string out = config.output.out;
    config.output.resume = "auto";
    const auto ended = train_in_child(config, {});
    EXPECT_EQ(ended.code, 0) << ended.errors;
    EXPECT_EQ(ended.left.parameters, parameters());
    EXPECT_THAT(ended.errors, Not(HasSubstr("warning"))) << ended.errors;
    if (before.code == 0) {
      // The run was complete, so no file was changed.
      return;
    }
    EXPECT_THAT(
        list_directory(out), UnorderedElementsAre(
                                 "checkpoints", "config.toml", "environment.json",
                                 "metrics.jsonl", "summary.json"));
    for (const auto& name : list_directory(out + "/checkpoints")) {
      EXPECT_TRUE(name == "best" || name.rfind("step-", 0) == 0) << name;
    }
  }
};

// A failed removal is not an error. An old checkpoint is renamed before it is removed.
// Nothing depends on the content of run.lock.
bool may_fail(const std::string& operation) {
  const auto is = [&](const char* call) { return operation.rfind(call, 0) == 0; };
  return is("unlink") || is("rmdir") || is("remove") ||
         (is("rename ") && operation.find("/tmp-step-") != std::string::npos) ||
         operation.find("/run.lock") != std::string::npos;
}

TEST_P(FaultyDisk, AFailedOperationEndsTheRunOrHasNoEffect) {
  int ended_runs = 0;
  at_each_operation(FaultKind::fail, [&](const Ended& ended, const FileFault& fault) {
    ended_runs += ended.code == 1 ? 1 : 0;
    EXPECT_EQ(ended.code, may_fail(ended.left.faulty) ? 0 : 1) << ended.left.faulty;
    EXPECT_EQ(
        lines_with(ended.errors, "error: ").size(), static_cast<size_t>(ended.code));
    if (ended.code == 1) {
      EXPECT_THAT(ended.errors, HasSubstr(fault.below));
      EXPECT_THAT(ended.errors, HasSubstr(std::strerror(fault.error)));
    }
  });
  EXPECT_GE(ended_runs, GetParam().least_ends);
}

TEST_P(FaultyDisk, AFullDiskEndsTheRun) {
  if (GetParam().no_exchange) {
    // Without exchange there are two renames instead of one; both fail below.
    return;
  }
  at_each_operation(FaultKind::full, [&](const Ended& ended, const FileFault& fault) {
    EXPECT_THAT(ended.code, AnyOf(0, 1));
    EXPECT_EQ(
        lines_with(ended.errors, "error: ").size(), static_cast<size_t>(ended.code));
    if (ended.code == 1) {
      EXPECT_THAT(ended.errors, HasSubstr(std::strerror(fault.error)));
    }
  });
}

TEST_P(FaultyDisk, ARunKilledAfterAnOperationResumesWithEqualBits) {
  at_each_operation(FaultKind::die, [&](const Ended& ended, const FileFault&) {
    EXPECT_EQ(ended.code, kFaultExit);
  });
}

TEST_P(FaultyDisk, ARunKilledDuringAnOperationResumesWithEqualBits) {
  if (GetParam().no_exchange) {
    return;
  }
  at_each_operation(FaultKind::tear, [&](const Ended& ended, const FileFault&) {
    EXPECT_EQ(ended.code, kFaultExit);
  });
}

bool is_appended(const std::string& path) {
  return ends_with(path, "/metrics.jsonl") || ends_with(path, "/run.lock");
}

// A power failure can lose bytes that are not flushed. So a file is flushed before it
// gets its name, and its folder before the next file gets its name.
TEST(PowerFailure, LosesNoRenamedFile) {
  const Scratch scratch;
  const auto config = faulty_config(scratch / "run");
  FileFault none;
  none.below = config.output.out;
  arm(none);
  Left left;
  EXPECT_EQ(train_here(config, left, {}), 0);
  const auto log = file_operation_log();
  arm({});
  std::set<std::string> unflushed;
  std::string renamed;
  int renames = 0;
  for (const auto& line : log) {
    const size_t space = line.find(' ');
    const std::string call = line.substr(0, space);
    const std::string path = line.substr(space + 1);
    if (call == "write" && !is_appended(path)) {
      unflushed.insert(path);
    } else if (call == "fsync" || call == "fdatasync") {
      unflushed.erase(path);
      renamed = path == parent_of(renamed) ? "" : renamed;
    } else if (call == "rename" || call == "renameat2") {
      EXPECT_THAT(unflushed, testing::IsEmpty()) << line;
      EXPECT_EQ(renamed, "") << line;
      renamed = path;
      ++renames;
    }
  }
  EXPECT_GE(renames, 6);
  EXPECT_EQ(renamed, "");
}

INSTANTIATE_TEST_SUITE_P(
    OperationsOn, FaultyDisk,
    testing::Values(
        Where{"Checkpoints", 50, true},
        Where{"CheckpointsThatCannotBeExchanged", 5, true, true},
        Where{"TheRunsOtherFiles", 6, false}),
    testing::PrintToStringParamName());

}  // namespace tandem::faulty_disk_test

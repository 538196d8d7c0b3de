// Runs whose disk fails in each operation in turn, or which are killed in it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <string>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tests/faults/faulty_run.h"

namespace tandem::faulty_disk_test {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

// Operation of a run that fails.
struct Where {
  const char* name;
  bool checkpoints;
  bool no_exchange = false;
};

void PrintTo(const Where& where, std::ostream* out) {
  *out << where.name;
}

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
    int64_t last = 1;
    for (int64_t operation = 1; operation <= last && !HasFailure(); ++operation) {
      const Scratch scratch;
      const auto out = scratch / "run";
      auto config = faulty_config(out);
      config.output.on_save_error = on_error;
      const auto fault = fault_for(out, kind, operation);
      if (operation == 1) {
        last = train_in_child(config, fault_for(scratch / "run", FaultKind::none, 0))
                   .left.operations;
        ASSERT_GT(last, GetParam().checkpoints ? 100 : 10);
        remove_all(out);
      }
      SCOPED_TRACE(testing::Message() << "operation " << operation << " of " << last);
      const auto ended = train_in_child(config, fault);
      SCOPED_TRACE(ended.errors);
      check(ended, fault);
      expect_only_whole_checkpoints(out, ended);
      expect_goes_on(config, ended);
    }
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
  EXPECT_GT(ended_runs, GetParam().checkpoints ? 50 : 5);
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

INSTANTIATE_TEST_SUITE_P(
    OperationsOn, FaultyDisk,
    testing::Values(
        Where{"Checkpoints", true},
        Where{"CheckpointsThatCannotBeExchanged", true, true},
        Where{"TheRunsOtherFiles", false}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace tandem::faulty_disk_test

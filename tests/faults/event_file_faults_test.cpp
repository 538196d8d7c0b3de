// Runs whose event file of --tensorboard cannot be written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tests/faults/faulty_run.h"

namespace tandem::event_file_faults_test {

using testing::HasSubstr;

RunConfig config_with_events(const std::string& out) {
  RunConfig config = faulty_config(out);
  config.output.tensorboard = true;
  config.output.log_every = 1;
  return config;
}

FileFault fault_in(const std::string& out, FaultKind kind, int64_t operation) {
  FileFault fault;
  fault.kind = kind;
  fault.operation = operation;
  fault.error = ENOSPC;
  fault.below = out + "/tensorboard";
  return fault;
}

TEST(EventFileFaults, ARunContinuesWithoutItsEventFile) {
  const Scratch scratch;
  const auto out = scratch / "whole";
  const auto whole =
      train_in_child(config_with_events(out), fault_in(out, FaultKind::none, 0)).left;
  // The directory, the file, and a record for each of three steps and the evaluation.
  ASSERT_GE(whole.operations, 6);
  for (int64_t operation = 1; operation <= whole.operations; ++operation) {
    SCOPED_TRACE(operation);
    const auto run = scratch / ("run" + std::to_string(operation));
    const auto ended = train_in_child(
        config_with_events(run), fault_in(run, FaultKind::full, operation));
    EXPECT_EQ(ended.code, 0) << ended.errors;
    EXPECT_STREQ(ended.left.parameters, whole.parameters);
    EXPECT_EQ(lines_with(ended.errors, "warning: ").size(), 1u) << ended.errors;
    EXPECT_THAT(
        ended.errors,
        HasSubstr("the run continues without TensorBoard's file: [files] cannot "));
    EXPECT_THAT(ended.errors, HasSubstr(run + "/tensorboard"));
    EXPECT_THAT(ended.errors, HasSubstr(std::strerror(ENOSPC)));
    const auto metrics = read_file(run + "/metrics.jsonl");
    EXPECT_EQ(lines_with(metrics, "\"kind\":\"lost_output\"").size(), 1u) << metrics;
    EXPECT_EQ(lines_with(metrics, "\"kind\":\"train\"").size(), 3u) << metrics;
  }
}

}  // namespace tandem::event_file_faults_test

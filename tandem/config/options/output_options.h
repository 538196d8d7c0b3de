#pragma once

#include <cstdint>
#include <string>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Which of log_every steps has the report.
enum class LogAt { last_and_end, last, first };
template <>
struct Choices<LogAt> {
  static constexpr Choice<LogAt> rows[] = {
      {LogAt::last_and_end, "last+end", "their last, and an epoch's last"},
      {LogAt::last, "last"},
      {LogAt::first, "first", "of N steps those with {batch_index} 0, N, 2 N"}};
};

/// Who reports.
enum class LogRanks { first, host, all };
template <>
struct Choices<LogRanks> {
  static constexpr Choice<LogRanks> rows[] = {
      {LogRanks::first, "0", "for all ranks together"},
      {LogRanks::host, "host", "the first of each host, its own numbers"},
      {LogRanks::all, "all", "each its own"}};
};

/// What a checkpoint that cannot be written does to the run.
enum class OnSaveError { stop, warn };
template <>
struct Choices<OnSaveError> {
  static constexpr Choice<OnSaveError> rows[] = {
      {OnSaveError::stop, "stop", "the run ends"},
      {OnSaveError::warn, "warn", "a warning, unless it is the run's last"}};
};

/// Action of the run on SIGUSR1 to any rank.
enum class OnSigusr1 { save, stop };
template <>
struct Choices<OnSigusr1> {
  static constexpr Choice<OnSigusr1> rows[] = {
      {OnSigusr1::save, "save", "save a checkpoint and continue"},
      {OnSigusr1::stop, "stop", "save a checkpoint and stop with exit code 75"}};
};

/// What a run writes, where and when.
struct OutputOptions {
  // The run directory; "": nothing is written.
  std::string out;
  // A checkpoint to go on from, or "auto".
  std::string resume;
  int64_t checkpoint_every = 0;
  double checkpoint_minutes = 0;
  int64_t keep_checkpoints = 3;
  bool keep_best = false;
  OnSaveError on_save_error = OnSaveError::stop;
  OnSigusr1 on_sigusr1 = OnSigusr1::save;
  int64_t log_every = 10;
  LogAt log_at = LogAt::last_and_end;
  LogRanks log_ranks = LogRanks::first;
  // Templates (line_format.h).
  std::string join_line;
  std::string start_line;
  std::string log_line;
  std::string epoch_line;
  std::string converged_line;
  std::string test_line;
  std::string end_line;
  int64_t eval_every = 1;
  int64_t eval_batch_size = 1000;
  bool trace = false;
  bool dry_run = false;

  template <typename Table>
  static void describe(Table& table) {
    using O = OutputOptions;
    table.section("output");
    table.add("out", &O::out, "run directory; none: nothing is written")
        .local()
        .of_one_start();
    table.add("resume", &O::resume, "checkpoint to go on from, or auto")
        .local()
        .of_one_start();
    table
        .add(
            "checkpoint_every", &O::checkpoint_every,
            "also save every N steps; 0: at the end of epochs")
        .between(0, kMany);
    table
        .add(
            "checkpoint_minutes", &O::checkpoint_minutes,
            "also save when so many minutes have passed; 0: never")
        .between(0, kLarge);
    table.add("keep_checkpoints", &O::keep_checkpoints, "newest to keep; 0: all")
        .between(0, kMany);
    table.add(
        "keep_best", &O::keep_best,
        "also keep the checkpoint with the lowest test loss, as checkpoints/best");
    table.add("on_save_error", &O::on_save_error, "what a checkpoint that fails does");
    table.add("on_sigusr1", &O::on_sigusr1, "action on SIGUSR1 to any rank");
    table.add("log_every", &O::log_every, "steps between reports").between(1, kMany);
    table.add("log_at", &O::log_at, "which of them has the report");
    table.add("log_ranks", &O::log_ranks, "who reports");
    table
        .add(
            "join_line", &O::join_line,
            "template of a line before a rank meets the others: {rank} {master_addr} "
            "{master_port}")
        .line_template();
    table
        .add(
            "start_line", &O::start_line,
            "template of a first line; {rank} {share} {epochs} and the like stand for "
            "values")
        .line_template();
    table
        .add(
            "log_line", &O::log_line,
            "template of reports, such as 'step {step}/{steps} loss {loss:.4f}'; loss "
            "is the mean since the last report, {batch_loss} that of the rank's last "
            "batch alone; off: none")
        .line_template();
    table
        .add(
            "epoch_line", &O::epoch_line,
            "template of a line after each epoch's training")
        .line_template();
    table
        .add(
            "converged_line", &O::converged_line,
            "template of a line when min_delta ends a rank's training")
        .line_template();
    table.add("test_line", &O::test_line, "template of test results; off: none")
        .line_template();
    table.add("end_line", &O::end_line, "template of the last line").line_template();
    table
        .add(
            "eval_every", &O::eval_every,
            "evaluate after every n-th epoch, and after the last")
        .between(1, 1 << 24);
    table.add("eval_batch_size", &O::eval_batch_size, "samples per evaluation batch")
        .between(1, 1 << 24);
    table.add("trace", &O::trace, "write trace.json of the first steps");
    table
        .add(
            "dry_run", &O::dry_run,
            "two training steps of one epoch, two evaluation batches, no "
            "checkpoint")
        .also({"--fast-dev-run"})
        .of_one_start();
  }
};

}  // namespace tandem

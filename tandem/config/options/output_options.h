#pragma once

#include <cstdint>
#include <string>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Steps that are reported in each interval of log_every steps.
enum class LogAt { last_and_end, last, first };
template <>
struct Choices<LogAt> {
  static constexpr Choice<LogAt> rows[] = {
      {LogAt::last_and_end, "last+end", "the last one, and the last step of an epoch"},
      {LogAt::last, "last", "the last one"},
      {LogAt::first, "first", "the first one: {batch_index} 0, N, 2 N"}};
};

/// Ranks that print reports.
enum class LogRanks { first, host, all };
template <>
struct Choices<LogRanks> {
  static constexpr Choice<LogRanks> rows[] = {
      {LogRanks::first, "0", "rank 0, with the figures of all ranks"},
      {LogRanks::host, "host", "the first rank of each host, with its own figures"},
      {LogRanks::all, "all", "every rank, with its own figures"}};
};

/// Reaction of a run to a checkpoint that cannot be written.
enum class OnSaveError { stop, warn };
template <>
struct Choices<OnSaveError> {
  static constexpr Choice<OnSaveError> rows[] = {
      {OnSaveError::stop, "stop", "end the run"},
      {OnSaveError::warn, "warn",
       "warn, but end the run if it is the last checkpoint"}};
};

/// Reaction of a run to SIGUSR1, which any rank may receive.
enum class OnSigusr1 { save, stop };
template <>
struct Choices<OnSigusr1> {
  static constexpr Choice<OnSigusr1> rows[] = {
      {OnSigusr1::save, "save", "save a checkpoint and continue"},
      {OnSigusr1::stop, "stop", "save a checkpoint and stop with exit code 75"}};
};

/// Settings for the files and lines that a run writes, and for the times at which it
/// saves and evaluates.
struct OutputOptions {
  // Run directory; "": no files are written.
  std::string out;
  // Checkpoint to resume from; "auto": the newest checkpoint in `out`, if any; "":
  // none.
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
  // Templates of the lines that a run prints (line_format.h).
  std::string join_line;
  std::string start_line;
  std::string log_line;
  std::string epoch_line;
  std::string converged_line;
  std::string test_line;
  std::string end_line;
  int64_t eval_every = 1;
  int64_t eval_batch_size = 1000;
  bool tensorboard = false;
  bool trace = false;
  bool dry_run = false;

  template <typename Table>
  static void describe(Table& table) {
    using O = OutputOptions;
    table.section("output");
    table.add("out", &O::out, "run directory; empty: no files are written")
        .local()
        .of_one_start();
    table
        .add(
            "resume", &O::resume,
            "checkpoint to resume from; auto: the newest in --out, if any")
        .local()
        .of_one_start();
    table
        .add(
            "checkpoint_every", &O::checkpoint_every,
            "also save a checkpoint every N steps; 0: only after epochs")
        .between(0, kMany);
    table
        .add(
            "checkpoint_minutes", &O::checkpoint_minutes,
            "also save a checkpoint every N minutes; 0: only after epochs")
        .between(0, kLarge);
    table
        .add(
            "keep_checkpoints", &O::keep_checkpoints,
            "number of newest checkpoints to keep; 0: all")
        .between(0, kMany);
    table.add(
        "keep_best", &O::keep_best,
        "also keep the checkpoint with the lowest loss of the validation part (of the "
        "test part without --validation), as checkpoints/best");
    table.add(
        "on_save_error", &O::on_save_error,
        "reaction to a checkpoint that cannot be written");
    table.add("on_sigusr1", &O::on_sigusr1, "action on SIGUSR1 to any rank");
    table.add("log_every", &O::log_every, "steps between reports").between(1, kMany);
    table.add("log_at", &O::log_at, "step that is reported in each log_every steps");
    table.add("log_ranks", &O::log_ranks, "ranks that report");
    table
        .add(
            "join_line", &O::join_line,
            "template of a line before a rank joins: {rank} {master_addr} "
            "{master_port}")
        .line_template();
    table
        .add(
            "start_line", &O::start_line,
            "template of the first line: {rank} {share} {epochs} and other values")
        .line_template();
    table
        .add(
            "log_line", &O::log_line,
            "template of reports, such as 'step {step}/{steps} loss {loss:.4f}'; "
            "{loss} is the mean since the last report, {batch_loss} the loss of the "
            "rank's last batch; off: no reports")
        .line_template();
    table
        .add(
            "epoch_line", &O::epoch_line,
            "template of a line after each epoch's training")
        .line_template();
    table
        .add(
            "converged_line", &O::converged_line,
            "template of a line when --min-delta ends the training of a rank")
        .line_template();
    table.add("test_line", &O::test_line, "template of test results; off: no line")
        .line_template();
    table.add("end_line", &O::end_line, "template of the last line").line_template();
    table
        .add(
            "eval_every", &O::eval_every,
            "evaluate after every N epochs, and after the last")
        .between(1, 1 << 24);
    table.add("eval_batch_size", &O::eval_batch_size, "samples per evaluation batch")
        .between(1, 1 << 24);
    table.add(
        "tensorboard", &O::tensorboard,
        "also write the numbers of metrics.jsonl for TensorBoard, to OUT/tensorboard");
    table.add(
        "trace", &O::trace, "write traces of the first 20 steps, trace/rank-N.json");
    table
        .add(
            "dry_run", &O::dry_run,
            "try a run: two training steps, two evaluation batches, no checkpoint")
        .also({"--fast-dev-run"})
        .of_one_start();
  }
};

}  // namespace tandem

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"

namespace tandem {

/// A line of metrics.jsonl: sums over all ranks since the last one.
struct TrainReport {
  // Counts from 0 in memory; lines and messages count epochs from 1.
  int64_t epoch = 0;
  int64_t step_in_epoch = 0;
  int64_t steps_per_epoch = 0;
  // Optimizer steps since the run began, and samples of all ranks in them.
  int64_t step = 0;
  int64_t samples = 0;
  // Mean loss per sample.
  double loss = 0;
  // Percent.
  double train_accuracy = 0;
  double lr = 0;
  double samples_per_second = 0;
  // Since training began, without evaluation.
  double train_seconds = 0;
};

struct TestReport {
  int64_t epoch = 0;
  int64_t step = 0;
  int64_t samples = 0;
  // Of training so far.
  double train_seconds = 0;
  double loss = 0;
  int64_t correct = 0;
  int64_t count = 0;

  double accuracy() const {
    return count > 0 ? 100.0 * static_cast<double>(correct) / static_cast<double>(count)
                     : 0;
  }
};

/// summary.json, at the end of a run.
struct Summary {
  TestReport test;
  // Percent, over the last epoch that this process trained; in a run whose ranks do
  // not make their steps together, of rank 0's samples.
  double train_accuracy = 0;
  double train_seconds = 0;
  // Seconds since the program began (base/program_clock.h).
  double program_seconds = 0;
  double samples_per_second = 0;
  double exposed_comm_ms_per_step = 0;
  // With a loss scale: steps left out because gradients overflowed, and the scale at
  // the end.
  int64_t skipped_steps = 0;
  double loss_scale = 1;
  // Bytes of gradients that a rank's reduction moves in a step.
  double gradient_bytes = 0;
  // Bytes of the tensors that a rank gave to operations, mean over ranks.
  double bytes_sent_per_rank = 0;
  // PSS: each process's own peak, added up over the ranks' processes.
  double peak_memory_mib = 0;
  // What ranks took of their devices, each device's own peak, added up; none where the
  // ranks compute in main memory.
  std::optional<double> peak_device_memory_mib;
  // For how long a checkpoint had training stand still, at the rank where it was
  // longest: state is gathered and copied, and the checkpoint before must have been
  // written.
  double mean_save_pause_ms = 0;
  double longest_save_pause_ms = 0;
  int64_t epochs = 0;
  int64_t steps = 0;
  // "epochs", "converged", "patience" or "observer".
  std::string ended_by;
  // The lowest test loss and where it was; step -1: there was no evaluation.
  double best_test_loss = 0;
  int64_t best_test_step = -1;
  int world_size = 1;
  std::string backend;
  // Not `automatic`.
  ExecutorKind executor = ExecutorKind::eager;
  // `automatic` where the strategy has no such choice.
  OptimizerState optimizer_state = OptimizerState::automatic;
  std::string parameters_sha256;
  // Strategy::measurements().
  std::map<std::string, std::vector<double>> measurements;
};

/// The files of a run: config.toml, environment.json, metrics.jsonl,
/// summary.json, checkpoints/. Rank 0 owns it; with an empty path, and on other
/// ranks, nothing is written. Every file has a format_version.
class RunDirectory {
 public:
  /// Makes the directory and writes config and environment; metrics of an
  /// earlier run there are kept when `append`. What a killed one did not finish to
  /// write goes. Throws DataError.
  RunDirectory(const std::string& path, const RunConfig& config, bool append);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  void add(const TrainReport& report);
  void add(const TestReport& report);
  /// A line of metrics.jsonl of kind "lost_output", at the step of the line before.
  void note_lost_output(const std::string& where_and_why);
  /// Drops the metrics of steps after this one: a resumed run writes them again.
  void forget_after(int64_t step);
  void finish(const Summary& summary, const RunConfig& config);

  /// Where checkpoints go, "" when nowhere.
  std::string checkpoints() const;
  const std::string& path() const {
    return path_;
  }

 private:
  void open_metrics(int mode);
  void append_line(const std::string& line);

  std::string path_;
  int metrics_fd_ = -1;
  // Of the last report.
  int64_t step_ = 0;
};

/// The time in UTC and this machine as JSON: CPU, instruction sets, threads, versions.
std::string environment_json();

}  // namespace tandem

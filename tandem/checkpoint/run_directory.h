#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/file_lock.h"
#include "tandem/base/held_folder.h"
#include "tandem/base/record_file.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/data/dataset.h"
#include "tandem/formats/event_file.h"

namespace tandem {

/// A training line of metrics.jsonl. Loss and metric cover the steps since the previous
/// line. They cover all ranks, or only rank 0 if ranks do not step together.
struct TrainReport {
  // Number of the epoch, from 0. Lines and messages count epochs from 1.
  int64_t epoch = 0;
  int64_t step_in_epoch = 0;
  int64_t steps_per_epoch = 0;
  // Number of optimizer steps since the run began, and number of samples that all ranks
  // processed in them.
  int64_t step = 0;
  int64_t samples = 0;
  // Mean loss per sample; if a sample has several targets, per target.
  double loss = 0;
  // Metric of the loss, and its value on the training samples.
  const Metric* metric = &kAccuracy;
  double metric_value = 0;
  double lr = 0;
  // Norm of the gradients in the last step (Strategy::gradient_norm()).
  std::optional<double> gradient_norm;
  double samples_per_second = 0;
  // Mean time per step for which this rank waited for communication, over its steps
  // since the previous line.
  double exposed_comm_ms_per_step = 0;
  // Peak memory of this rank's process (PeakMemory in train/report/measures.h).
  double process_peak_memory_mib = 0;
  // Training time, without evaluation, in seconds.
  double train_seconds = 0;
};

/// Result of an evaluation, and its line in metrics.jsonl.
struct TestReport {
  // Position of the evaluation in the run: index of the epoch (from 0), number of
  // optimizer steps since the run began, and number of samples that all ranks processed
  // in these steps.
  int64_t epoch = 0;
  int64_t step = 0;
  int64_t samples = 0;
  // Training time until the evaluation, in seconds.
  double train_seconds = 0;
  // Part of the data set on which the model was evaluated.
  DataPart part = DataPart::test;
  // Mean loss per sample; if a sample has several targets, per target.
  double loss = 0;
  // Metric of the loss, and its value on the samples.
  const Metric* metric = &kAccuracy;
  double metric_value = 0;
  // Number of correct samples, or 0 if the metric is not a percentage, and number of
  // all evaluated samples. If a sample has several targets, numbers of targets.
  int64_t correct = 0;
  int64_t count = 0;

  /// Returns `correct` as a percentage of `count`.
  double accuracy() const {
    return count > 0 ? 100.0 * static_cast<double>(correct) / static_cast<double>(count)
                     : 0;
  }
};

/// Content of summary.json, which is written at the end of a run.
struct Summary {
  TestReport test;
  // Value of test.metric on the training samples, in the last epoch that this process
  // trained. If ranks do not step together, it covers only rank 0's samples.
  double train_metric_value = 0;
  double train_seconds = 0;
  // Seconds since the program began (base/program_clock.h).
  double program_seconds = 0;
  double samples_per_second = 0;
  double exposed_comm_ms_per_step = 0;
  // Number of steps that were skipped because gradients overflowed, and loss scale at
  // the end of the run (1 without loss scaling).
  int64_t skipped_steps = 0;
  double loss_scale = 1;
  // Bytes of gradients that a rank reduces in a step.
  double gradient_bytes = 0;
  // Bytes of the tensors that a rank communicated in the run, mean over ranks.
  double bytes_sent_per_rank = 0;
  // Peak memory (PSS) of the rank processes, summed over the processes.
  double peak_memory_mib = 0;
  // Peak memory of the devices, summed over the devices; nullopt if the ranks compute
  // in main memory.
  std::optional<double> peak_device_memory_mib;
  // Mean and longest time for which a save pauses a rank's training. Each value is the
  // maximum over all ranks. During a pause, the rank waits for the previous save, and
  // the state is gathered and copied.
  double mean_save_pause_ms = 0;
  double longest_save_pause_ms = 0;
  // Number of steps that rank 0's executor recorded, and their duration in seconds.
  int64_t recorded_steps = 0;
  double recording_seconds = 0;
  int64_t epochs = 0;
  int64_t steps = 0;
  // Reason for the end: "epochs", "converged", "patience" or "observer".
  std::string ended_by;
  // True: the run has a validation part.
  bool has_validation = false;
  // Lowest loss on the validation part, or on the test part if there is no validation
  // part, and the step of this evaluation. The step is -1 if there was no evaluation.
  double best_test_loss = 0;
  int64_t best_test_step = -1;
  int world_size = 1;
  std::string backend;
  // Executor that the run used, never `automatic`.
  ExecutorKind executor = ExecutorKind::eager;
  // Values that were sharded; `automatic` if the strategy does not support the setting.
  Sharding shard = Sharding::automatic;
  std::string parameters_sha256;
  // Values for each name, from Strategy::measurements().
  std::map<std::string, std::vector<double>> measurements;
};

/// Lock that prevents two runs from writing to the same directory, because they would
/// remove each other's unfinished checkpoints. Only rank 0 of a run locks the
/// directory, so a run never blocks itself.
///
/// The lock is a FileLock on DIRECTORY/run.lock. If the directory cannot be written, or
/// its file system has no locks, the run continues without a lock.
class RunLock {
 public:
  /// Locks `directory`. If another process holds the lock, waits up to two seconds,
  /// because that process may be about to exit. Then throws ConfigError, with the id
  /// and host of that process.
  [[nodiscard]] explicit RunLock(const std::string& directory);

  /// Throws FolderLost if the directory or its lock file was removed, renamed or
  /// replaced, since another run may use the path. Call it before each write.
  /// Thread-safe.
  void check() const;

 private:
  HeldFolder folder_;
  FileLock lock_;
};

/// Writes the files of a run except its checkpoints: config.toml, environment.json,
/// metrics.jsonl, summary.json, and a copy of a network file (network_file.h). With
/// config.output.tensorboard, also writes tensorboard/, an event file with the numbers
/// in the lines of metrics.jsonl. Rank 0 owns the directory. If the path is "", as on
/// all other ranks, nothing is written. Each TOML and JSON file has a format_version.
class RunDirectory {
 public:
  /// Creates the directory and writes config.toml, environment.json and the copy of the
  /// network file. `resumed_step` is the step from which the run resumes, or nullopt
  /// for a new run. A resumed run keeps the metrics up to this step, and starts a new
  /// event file. Removes unfinished files of a killed run. `lock`, if it is not null,
  /// is the lock of the directory. It must outlive this object, which checks it before
  /// each write. Throws DataError if a file cannot be written, except for the event
  /// file. This and the other functions throw FolderLost if the directory is lost.
  RunDirectory(
      const std::string& path, const RunConfig& config,
      std::optional<int64_t> resumed_step, const RunLock* lock = nullptr);

  /// Appends a line to metrics.jsonl, and its numbers to the event file. If the event
  /// file cannot be written, warns, and the run continues without it.
  void add(const TrainReport& report);
  void add(const TestReport& report);
  /// Appends a line of kind "resume" to metrics.jsonl, with the position, the number of
  /// samples and the training time (in seconds) at which the run resumes.
  void note_resume(const Position& position, int64_t samples, double train_seconds);
  /// Appends a line of kind "lost_output" to metrics.jsonl, with the step of the
  /// previous line. `where_and_why` is the result of Progress::lost(), or the error
  /// that ended the event file.
  void note_lost_output(const std::string& where_and_why);
  /// Writes summary.json.
  void finish(const Summary& summary, const RunConfig& config);

  /// Returns the directory for checkpoints, "" if no checkpoints are saved.
  std::string checkpoints() const;
  const std::string& path() const {
    return path_;
  }

 private:
  void append(const std::string& line);
  // Appends a line with the given step, and its numbers to the event file.
  void add_line(const std::string& line, int64_t step, const Scalars& scalars);
  // Calls `write`. If it fails, ends the event file.
  void write_events(const std::function<void()>& write);

  void check_lock() const;

  std::string path_;
  const RunLock* lock_;
  std::optional<RecordFile> metrics_;
  std::optional<EventFile> events_;
  // Step of the last report.
  int64_t step_ = 0;
};

/// Returns, as JSON, the current time in UTC and a description of this machine: CPU,
/// instruction sets, threads, versions.
std::string environment_json();

/// Throws ConfigError if `directory` is a symbolic link or belongs to another user, who
/// could make the run write or remove files of this user. A missing directory is
/// accepted.
void check_own_directory(const std::string& directory);

/// Throws ConfigError if an entry of `directory` that a run writes is a symbolic link,
/// or not a file or a folder as expected: a stranger's link would make the run change
/// other files of this user.
void check_own_entries(const std::string& directory);

}  // namespace tandem

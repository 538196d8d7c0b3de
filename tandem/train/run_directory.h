#pragma once

#include <cstdint>
#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/train/config.h"

namespace tandem {

/// A line of metrics.jsonl: sums over all ranks since the last one.
struct TrainReport {
  // Counts from 0 in memory; lines and messages count epochs from 1.
  int64_t epoch = 0;
  int64_t step_in_epoch = 0;
  int64_t steps_per_epoch = 0;
  // Optimizer steps since the run began.
  int64_t step = 0;
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
  double train_seconds = 0;
  double samples_per_second = 0;
  double exposed_comm_ms_per_step = 0;
  int64_t epochs = 0;
  int64_t steps = 0;
  int world_size = 1;
  std::string backend;
  std::string executor;
  std::string parameters_sha256;
};

/// The files of a run: config.toml, environment.json, metrics.jsonl,
/// summary.json, checkpoints/. Rank 0 owns it; with an empty path, and on other
/// ranks, nothing is written. Every file has a format_version.
class RunDirectory {
 public:
  /// Makes the directory and writes config and environment; metrics of an
  /// earlier run there are kept when `append`. Throws DataError.
  RunDirectory(const std::string& path, const RunConfig& config, bool append);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  void add(const TrainReport& report);
  void add(const TestReport& report);
  void finish(const Summary& summary, const RunConfig& config);

  /// Where checkpoints go, "" when nowhere.
  std::string checkpoints() const;
  const std::string& path() const {
    return path_;
  }

 private:
  void append_line(const std::string& line);

  std::string path_;
  int metrics_fd_ = -1;
};

/// What this machine is, as JSON: CPU, instruction sets, threads, versions.
std::string environment_json();

}  // namespace tandem

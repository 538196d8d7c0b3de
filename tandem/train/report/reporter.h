#pragma once

#include <cstdint>
#include <utility>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/data/dataset.h"
#include "tandem/parallel/strategy.h"
#include "tandem/train/report/measures.h"
#include "tandem/train/report/progress.h"
#include "tandem/train/report/report_listener.h"

namespace tandem {

/// Position of a report in its run.
struct ReportPlace {
  Position position;
  // Value of position.step_in_epoch at the end of the epoch.
  int64_t steps_per_epoch = 0;
  double lr = 0;
};

/// Mean loss of an epoch. It covers all ranks if they wait for each other in each step,
/// otherwise only this rank. It is 0 if there are no samples.
struct EpochLoss {
  double mean = 0;
  // Loss from which Convergence computes the improvement. If it covers only this rank,
  // config.training.epoch_mean selects the number of samples by which it is divided.
  double compared = 0;
};

/// Accumulates the results of steps, prints them on standard output and writes them to
/// metrics.jsonl.
///
/// If the ranks wait for each other in each step, a report covers all ranks. Otherwise
/// (averaging, Hogwild, an asynchronous server), it covers only this rank, because a
/// reduction in the middle of an epoch would make all ranks wait.
class Reporter {
 public:
  /// Prepares the reports of a rank that computes on `device`. `metric` is the metric
  /// of the loss, and `train` is the training data of all ranks. The arguments, except
  /// `train`, must outlive the reporter.
  Reporter(
      const RunConfig& config, Communicator& comm, Strategy& strategy,
      at::Device device, const Metric& metric, const Dataset& train);

  /// Sets the directory for metrics.jsonl. `directory` must outlive the reporter. Call
  /// this function before the first report.
  void write_to(RunDirectory& directory) {
    directory_ = &directory;
  }

  /// Sets the listener, which gets each line of metrics.jsonl and must outlive the
  /// reporter. Null sets no listener.
  void report_to(ReportListener* listener) {
    listener_ = listener;
  }

  RunClock& clock() {
    return clock_;
  }

  /// Continues the times of a run that resumes at `position`, and writes a line of kind
  /// "resume" to metrics.jsonl. `has_epoch_sums` is true if epoch_sums() was loaded
  /// from the checkpoint.
  void resumed(const Position& position, const RunTime& earlier, bool has_epoch_sums);

  /// Returns the time of the run until `position`, for a checkpoint.
  RunTime time(const Position& position) const;

  /// Adds this rank's sums of a step. Does not wait for the device that computes them.
  /// `samples_before` is Position::samples_in_epoch before the step, and `waited` the
  /// time for which this rank waited for communication, in seconds. `has_samples` is
  /// false if all batches of the step were empty.
  void add_step(
      const StepSums& sums, int64_t samples_before, double waited = 0,
      bool has_samples = true);

  /// Writes the results since the last report to metrics.jsonl. If `shown` is true,
  /// also prints the results. Collective if the ranks wait for each other in each step
  /// (Strategy::in_lockstep()).
  void report(const ReportPlace& place, bool shown);

  /// Ends an epoch, prints config.output.epoch_line and returns the epoch's loss.
  /// `done` is true if the epoch is complete. Otherwise, keeps the sums of the epoch
  /// for a checkpoint. Collective if the ranks wait for each other in each step
  /// (Strategy::in_lockstep()).
  EpochLoss end_epoch(const ReportPlace& place, bool done = true);

  /// Returns this rank's sums of the epoch (StepSums::tensor()), for a checkpoint in
  /// the middle of an epoch. The tensor shares this object's memory.
  at::Tensor epoch_sums();

  /// Returns the value of the metric in the last epoch with samples.
  double epoch_metric() const {
    return epoch_metric_;
  }

  /// Returns the peak memory of this process in MiB (PeakMemory::mib()).
  double peak_memory_mib() {
    return memory_.mib();
  }

  /// Prints config.output.start_line and starts the clock.
  void start(int64_t samples_of_this_rank);
  /// Prints that this rank has converged: config.output.converged_line if this rank
  /// prints reports. If the setting is empty, prints a default line, only on rank 0.
  void converged(const ReportPlace& place);
  /// Sets the training time of a test report, then writes the report to metrics.jsonl
  /// and prints it.
  void show(TestReport report);
  /// Prints the last line of the run.
  void end();
  /// Prints a line on rank 0.
  void say(const std::string& line);

 private:
  // Warns once if lines of output were lost.
  void note_lost_output();
  /// Returns the values for output lines that do not depend on the position in the run.
  LineValues values_of_run() const;
  /// Returns the values for the output line of a report at `place`. `sums` are the sums
  /// over all steps of the report, `batch` the sums of the last step.
  LineValues values_at(
      const ReportPlace& place, const StepSums::Values& sums,
      const StepSums::Values& batch) const;
  std::pair<StepSums::Values, StepSums::Values> reported_sums();
  double batch_loss(const StepSums::Values& batch) const;
  // Returns the number of samples that all ranks processed until `position`.
  int64_t samples_until(const Position& position) const;
  int64_t own_samples_per_step() const;

  // Returns the line of metrics.jsonl for a report at `place`. Collective.
  TrainReport report_of(const ReportPlace& place, const LineValues& values);

  const RunConfig& config_;
  Communicator& comm_;
  Strategy& strategy_;
  at::Device device_;
  const Metric& metric_;
  // Number of all samples in an epoch.
  int64_t total_samples_;
  double targets_per_sample_;
  int64_t num_gpus_;
  DataShard shard_;
  bool in_lockstep_;
  // True if output lines show the results of this rank only.
  bool own_numbers_;
  // True if the ranks divide each batch and output lines show the loss of the whole
  // batch.
  bool whole_batch_;
  Progress progress_;
  RunClock clock_;
  PeakMemory memory_;
  RunDirectory* directory_ = nullptr;
  ReportListener* listener_ = nullptr;
  // This rank's sums since the last report, and since the start of the epoch.
  StepSums sums_;
  StepSums epoch_sums_;
  // This rank's sums of its last step with samples. If `whole_batch_` is true, sums of
  // its last step even without samples, because other ranks may have samples in this
  // step.
  StepSums batch_;
  // Sums of the last step that the last report covered.
  StepSums::Values shown_batch_;
  double epoch_metric_ = 0;
  // Position::samples_in_epoch before the last step.
  int64_t samples_before_ = 0;
  // Number of steps of this epoch that `epoch_sums_` leaves out.
  int64_t missing_steps_ = 0;
  // samples_until() the last report.
  int64_t reported_samples_ = 0;
  // Number of steps since the last report, and the time for which this rank waited for
  // communication in them, in seconds.
  int64_t num_steps_ = 0;
  double waited_ = 0;
  bool lost_noted_ = false;
};

}  // namespace tandem

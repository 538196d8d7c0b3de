#pragma once

#include <cstdint>
#include <utility>

#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/parallel/strategy.h"
#include "tandem/train/report/measures.h"
#include "tandem/train/report/progress.h"

namespace tandem {

/// Where in its run a report is made.
struct ReportPlace {
  int64_t epoch = 0;
  int64_t step_in_epoch = 0;
  int64_t steps_per_epoch = 0;
  // Since the run began.
  int64_t step = 0;
  // Samples of the epoch that all ranks have done, of how many.
  int64_t samples = 0;
  int64_t total_samples = 0;
  double lr = 0;
};

/// Loss of an epoch: over all ranks in lockstep, else over this rank's samples; 0
/// without samples.
struct EpochLoss {
  double mean = 0;
  // Loss for min_delta, divided as config.training.epoch_mean says.
  double compared = 0;
};

/// Adds up what the steps gave, and turns it into lines on standard output and in
/// metrics.jsonl.
///
/// Reports are sums over all ranks while the ranks make their steps together. Where
/// they do not (averaging, Hogwild, an asynchronous server) adding up in the middle
/// of an epoch would be a barrier that the strategy does without: a report then is
/// of this rank's own samples.
class Reporter {
 public:
  /// `device`: where this rank computes.
  Reporter(
      const RunConfig& config, Communicator& comm, const Strategy& strategy,
      at::Device device);

  /// `directory` outlives the reporter.
  void write_to(RunDirectory& directory) {
    directory_ = &directory;
  }

  RunClock& clock() {
    return clock_;
  }

  /// What a step of this rank gave. Reads nothing.
  /// `has_samples`: whether its batches did, where it had any.
  void add_step(
      const StepSums& sums, const ReportPlace& place, bool has_samples = true);

  /// A report of the steps since the last one, `shown` as a line too. Collective in
  /// lockstep.
  void report(const ReportPlace& place, bool shown);

  /// Ends an epoch's sums. Collective in lockstep. `done`: whether the epoch is
  /// complete; else its sums are kept for the run that continues it.
  EpochLoss end_epoch(const ReportPlace& place, bool done = true);

  /// Of this rank in this epoch: this object's own tensor (StepSums::tensor()), for a
  /// run that goes on in the middle of an epoch.
  at::Tensor epoch_sums();

  /// Of the last epoch with samples that ended, percent.
  double epoch_accuracy() const {
    return epoch_accuracy_;
  }

  void start(int64_t samples_of_this_rank, int64_t total_samples);
  void converged(const ReportPlace& place);
  /// Adds the time of training.
  void show(TestReport report);
  void end();
  /// A line of rank 0.
  void say(const std::string& line);

 private:
  void note_lost_output();
  /// Returns the values that do not depend on a place in the run.
  LineValues values_of_run() const;
  /// `batch`: sums of a batch alone.
  LineValues values_at(
      const ReportPlace& place, const StepSums::Values& sums,
      const StepSums::Values& batch) const;
  std::pair<StepSums::Values, StepSums::Values> reported_sums();
  double batch_loss(const StepSums::Values& batch) const;
  int64_t own_samples_per_step() const;

  const RunConfig& config_;
  Communicator& comm_;
  at::Device device_;
  int64_t num_gpus_;
  DataShard shard_;
  bool in_lockstep_;
  // Lines show this rank's own numbers.
  bool own_numbers_;
  // The ranks divide a batch, and lines show it as one.
  bool whole_batch_;
  Progress progress_;
  RunClock clock_;
  RunDirectory* directory_ = nullptr;
  // Of this rank since the last report, and of the epoch.
  StepSums sums_;
  StepSums epoch_sums_;
  // Of this rank's last batch that had samples, or its part of the whole last one.
  StepSums batch_;
  // What the last report told of a batch.
  StepSums::Values shown_batch_;
  double epoch_accuracy_ = 0;
  ReportPlace before_step_;
  bool lost_noted_ = false;
};

}  // namespace tandem

#pragma once

#include <cstdint>
#include <string>

#include "tandem/config/options/metric.h"

namespace tandem {

/// Values for a line of a run's output. Templates contain the names of the members, and
/// of values that format_line() computes from them.
struct LineValues {
  int64_t rank = 0;
  // Number of the epoch: `epoch` counts from 1, `epoch_index` from 0.
  int64_t epoch = 0;
  int64_t epoch_index = 0;
  int64_t epochs = 0;
  int64_t step = 0;
  int64_t steps = 0;
  // Index in the epoch, from 0, of the rank's last batch. This batch contains all
  // samples that the rank read for its last step.
  int64_t batch_index = 0;
  // Mean loss of the last batch. If ranks divide a batch and only rank 0 prints, it is
  // the loss of the whole batch.
  double batch_loss = 0;
  // Number of samples of the epoch that this rank read before its last batch.
  int64_t own_samples = 0;
  // Number of samples of the epoch that all ranks processed before their last step.
  int64_t samples = 0;
  // Number of all samples in the epoch.
  int64_t total = 0;
  // Number of samples that this rank reads per epoch.
  int64_t share = 0;
  // Mean loss since the last report.
  double loss = 0;
  // Value of the loss's metric over `count` samples, or over `count` targets if a
  // sample has several targets. If the metric is a percentage, `correct` of `count` are
  // correct and `accuracy` is the metric. Otherwise, `correct` is 0 and `accuracy` is
  // NaN.
  double metric = 0;
  double accuracy = 0;
  int64_t correct = 0;
  int64_t count = 0;
  double lr = 0;
  double samples_per_second = 0;
  // Training time so far, without evaluation and saving, in seconds.
  double seconds = 0;
  // Time since the program started (base/program_clock.h), including loading data and
  // evaluation, in seconds.
  double program_seconds = 0;
  // Address and port at which the ranks connect to each other; set only for join_line.
  std::string master_addr;
  int64_t master_port = 0;
  // Device of the rank, and number of GPUs that the rank can use.
  std::string device = "cpu";
  int64_t num_gpus = 0;
};

/// Sets the members of `values` that follow from the sum of `metric` over `count`
/// targets.
void set_metric(LineValues& values, const Metric& metric, double sum, double count);

/// Returns a line from a template such as "Epoch [{epoch}/{epochs}], Loss: {loss:.4f}".
/// A template contains names of members of LineValues in braces, with optional format
/// specifications of fmt. A number without a specification has the format of Python's
/// print(). These names have values that are computed from the members:
/// - {step_percent} and {batch_percent}: `step` and `batch_index` as a percentage of
///   `steps`
/// - {percent}: `samples` as a percentage of `total`
/// - {minutes} and {program_minutes}: `seconds` and `program_seconds` in minutes
/// - {duration}: `seconds` in the format of Python's timedelta, 0:00:08.912345
///
/// Throws ConfigError that names `setting` if the template is not valid.
std::string format_line(
    const std::string& setting, const std::string& pattern, const LineValues& values);

}  // namespace tandem

#pragma once

#include <cstdint>
#include <string>

namespace tandem {

/// Values for a line of a run's output. Templates use the names of the members.
struct LineValues {
  int64_t rank = 0;
  // epoch counts from 1, epoch_index from 0.
  int64_t epoch = 0;
  int64_t epoch_index = 0;
  int64_t epochs = 0;
  int64_t step = 0;
  int64_t steps = 0;
  // Percentage of the epoch's steps that are done.
  double step_percent = 0;
  // The rank's last batch, which contains all samples that the rank read for its last
  // step. Index of the batch in the epoch, from 0; percentage of the epoch's steps
  // before it; its mean loss. If ranks divide a batch and only rank 0 prints,
  // batch_loss is that of the whole batch.
  int64_t batch_index = 0;
  double batch_percent = 0;
  double batch_loss = 0;
  // Number of samples that this rank read before that batch in the epoch.
  int64_t own_samples = 0;
  // Number of the epoch's samples before this step, number of all samples in the epoch,
  // and the first as a percentage of the second.
  int64_t samples = 0;
  int64_t total = 0;
  double percent = 0;
  // Number of samples that this rank reads per epoch.
  int64_t share = 0;
  // Mean loss since the last report.
  double loss = 0;
  // Accuracy in percent: `correct` of `count` samples.
  double accuracy = 0;
  int64_t correct = 0;
  int64_t count = 0;
  double lr = 0;
  double samples_per_second = 0;
  // Training time until now, without evaluation and saving.
  double seconds = 0;
  double minutes = 0;
  // Time since the program started (base/program_clock.h), including loading data and
  // evaluation.
  double program_seconds = 0;
  double program_minutes = 0;
  // Address at which the ranks meet; set only for join_line.
  std::string master_addr;
  int64_t master_port = 0;
  // The device of the rank, and the number of GPUs that it could use.
  std::string device = "cpu";
  int64_t num_gpus = 0;
};

/// Returns a line from a template such as "Epoch [{epoch}/{epochs}], Loss: {loss:.4f}":
/// members of LineValues in braces, with format specifications of fmt. A number without
/// a specification has the format of Python's print(). {duration} is `seconds` in the
/// format of Python's timedelta: 0:00:08.912345.
///
/// Throws ConfigError that names `setting` if the template is not valid.
std::string format_line(
    const std::string& setting, const std::string& pattern, const LineValues& values);

/// Returns the shortest text that is parsed as the same number. It contains a point or
/// an exponent, as TOML requires and as Python's repr() writes it.
std::string float_text(double value);

}  // namespace tandem

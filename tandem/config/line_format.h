#pragma once

#include <cstdint>
#include <string>

namespace tandem {

/// What a line of a run's output can show. In templates they have the names of the
/// fields.
struct LineValues {
  int64_t rank = 0;
  // From 1; epoch_index from 0.
  int64_t epoch = 0;
  int64_t epoch_index = 0;
  int64_t epochs = 0;
  int64_t step = 0;
  int64_t steps = 0;
  // Percent of the epoch's steps.
  double step_percent = 0;
  // Of this rank's last batch, which is all that it read for its last step: its place
  // in the epoch, from 0; the percent of the epoch's steps before it; and its own mean
  // loss. Where ranks divide a batch and rank 0 alone prints, the whole batch's loss.
  int64_t batch_index = 0;
  double batch_percent = 0;
  double batch_loss = 0;
  // Samples that this rank read before it, in the epoch.
  int64_t own_samples = 0;
  // Samples of the epoch before this step, of `total`; percent of them.
  int64_t samples = 0;
  int64_t total = 0;
  double percent = 0;
  // Samples that this rank reads in an epoch.
  int64_t share = 0;
  // Mean since the last report.
  double loss = 0;
  // Percent.
  double accuracy = 0;
  int64_t correct = 0;
  int64_t count = 0;
  double lr = 0;
  double samples_per_second = 0;
  // Time of training so far, without evaluation and saving.
  double seconds = 0;
  double minutes = 0;
  // Time since the program began (base/program_clock.h), with start, data and
  // evaluation.
  double program_seconds = 0;
  double program_minutes = 0;
  // Address at which the ranks meet; set for join_line only.
  std::string master_addr;
  int64_t master_port = 0;
  // What the rank computes on, and how many GPUs it could use.
  std::string device = "cpu";
  int64_t num_gpus = 0;
};

/// A line from a template such as "Epoch [{epoch}/{epochs}], Loss: {loss:.4f}":
/// names of LineValues in braces, with fmt's format specifications. Without one a
/// number is written as Python's print() writes it. {duration} is `seconds` as Python
/// writes a timedelta: 0:00:08.912345.
///
/// Throws ConfigError that names `setting` when the template is not valid.
std::string format_line(
    const std::string& setting, const std::string& pattern, const LineValues& values);

/// The fewest digits that are this number again, with a point or an exponent: as TOML
/// wants a float, and Python's repr() writes it.
std::string float_text(double value);

}  // namespace tandem

#pragma once

#include <cstdint>
#include <string>

#include "tandem/base/rank_env.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/config/line_format.h"
#include "tandem/config/run_config.h"

namespace tandem {

/// Returns whether a progress line is due after `steps` steps of an epoch. `last`:
/// whether the last of these steps ends the epoch.
bool is_line_due(const OutputOptions& options, int64_t steps, bool last);

/// Returns whether a rank prints reports, as config.output.log_ranks selects.
/// `local_rank` is the number of the rank on its host.
bool reports(const RunConfig& config, int rank, int local_rank);

/// Prints config.output.join_line if reports() is true for this rank. Call it before
/// the rank connects to the others. `env` has the rank, the address and the port.
void print_join_line(const RunConfig& config, const RankEnv& env);

/// Prints a rank's progress on standard output: a progress bar on a terminal, otherwise
/// a line per report, or lines from templates if the config has templates. Each line is
/// one write, so lines of several ranks do not mix.
class Progress {
 public:
  /// `first`: whether this is rank 0, which prints the lines about the whole run.
  /// `prints`: whether this rank prints reports.
  Progress(const RunConfig& config, bool first, bool prints);
  /// Ends the line of a progress bar that is still on the terminal.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Prints a report of training steps.
  void show(const LineValues& values);

  /// Prints the mean training loss of an epoch with config.output.epoch_line. Without
  /// that template, prints a line only if reports are a progress bar, which leaves no
  /// line on the terminal, and if `done` is true: the epoch is complete.
  void epoch(const LineValues& values, bool done);

  /// Prints a test result on rank 0, with config.output.test_line or in the form "Test
  /// set: Average loss: 0.0262, Accuracy: 9924/10000 (99%)".
  void show(const TestReport& report);

  /// Prints the last line of the run on rank 0. With log_ranks = host and an end_line,
  /// prints it on each host.
  void end(const LineValues& values);

  /// Prints a line from the template `pattern` of `setting` if this rank prints
  /// reports. Prints nothing if the template is empty.
  void line(
      const std::string& setting, const std::string& pattern, const LineValues& values);

  /// Prints a line on rank 0.
  void say(const std::string& line);

  /// Returns the stream on which lines were lost, and the reason, such as "standard
  /// output: Broken pipe"; "" if no lines were lost. Log lines of this process on
  /// standard error are included.
  std::string lost() const;

 private:
  void print(const std::string& line);
  void draw(const LineValues& values);
  void write(const std::string& text);

  const RunConfig& config_;
  bool first_;
  bool prints_;
  // True if reports are a progress bar.
  bool draws_;
  // True while the bar is on the last line of the terminal.
  bool drawn_ = false;
  // First error number of a write to standard output; 0 if there was none.
  int lost_ = 0;
};

}  // namespace tandem

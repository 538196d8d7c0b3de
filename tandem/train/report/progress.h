#pragma once

#include <cstdint>
#include <string>

#include "tandem/base/rank_env.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/config/line_format.h"
#include "tandem/config/run_config.h"

namespace tandem {

/// Returns whether a progress line is due after `steps` steps of an epoch. `last` is
/// true if the epoch has no further steps.
bool is_line_due(const OutputOptions& options, int64_t steps, bool last);

/// Returns whether a rank prints reports, as config.output.log_ranks selects.
/// `local_rank` is the number of the rank on its host.
bool reports(const RunConfig& config, int rank, int local_rank);

/// Returns the text of a test result, such as "Test set: Average loss: 0.0262,
/// Accuracy: 9924/10000 (99%)". If the metric is not a percentage, its value follows:
/// "Test set: Average loss: 0.0262, Mean absolute error: 0.1187". `decimals` is the
/// number of decimal places of the percentage.
std::string describe(const TestReport& report, int decimals);

/// Returns the text of a progress bar, such as "epoch 1/2 ████░░  50%  640 samples/s
/// loss 0.5  0:03 left". Shortens the bar and leaves out parts if the text would not
/// fit on a terminal with `columns` columns; 0: any width.
std::string progress_text(const LineValues& values, int columns);

/// Prints config.output.join_line if reports() is true for this rank. Call this
/// function before the rank connects to other ranks. `env` has the rank, and the
/// address and port of the rendezvous.
void print_join_line(const RunConfig& config, const RankEnv& env);

/// Prints a rank's progress on standard output. On a terminal it prints a progress bar,
/// otherwise a line per report. If the config has templates of lines, it uses the
/// templates. Each line is one write, so lines of several ranks do not mix.
class Progress {
 public:
  /// Prepares the output of a rank. `first` is true on rank 0, which prints the lines
  /// about the whole run. `prints` is true if this rank prints reports.
  Progress(const RunConfig& config, bool first, bool prints);
  /// Ends the line of a progress bar that is still on the terminal.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Prints a report of training steps.
  void show(const LineValues& values);

  /// Prints the mean training loss of an epoch with config.output.epoch_line. If this
  /// template and config.output.log_line are empty, prints a default line if the epoch
  /// is complete (`done`). `first_step` is the number of steps of the epoch that the
  /// mean leaves out, because an earlier process made them.
  void epoch(const LineValues& values, bool done, int64_t first_step = 0);

  /// Prints a test result on rank 0, with config.output.test_line or describe().
  /// `program_seconds` is RunClock::program_seconds().
  void show(const TestReport& report, double program_seconds);

  /// Prints the last line of the run on rank 0. If log_ranks is `host` and end_line is
  /// set, prints the line on the first rank of each host.
  void end(const LineValues& values);

  /// Prints a line from the template `pattern` of `setting` if this rank prints
  /// reports. Prints nothing if the template is empty.
  void line(
      const std::string& setting, const std::string& pattern, const LineValues& values);

  /// Prints a line on rank 0.
  void say(const std::string& line);

  /// Returns the stream that lost lines; "" if no lines were lost. For standard output,
  /// adds the reason: "standard output: Broken pipe". For standard error, which also
  /// has this process's log lines, returns "standard error".
  std::string lost() const;

 private:
  void print(const std::string& line);
  // Returns the start of a line of a rank that reports its own figures.
  std::string rank_prefix(const LineValues& values) const;
  void draw(const LineValues& values);
  void write(const std::string& text);

  const RunConfig& config_;
  bool first_;
  bool prints_;
  // True if reports are a progress bar.
  bool draws_;
  // True while the bar is on the last line of the terminal.
  bool drawn_ = false;
  // Error number (errno) of the first failed write to standard output; 0 if no write
  // failed.
  int lost_ = 0;
};

}  // namespace tandem

#pragma once

#include <cstdint>
#include <string>

#include "tandem/base/rank_env.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/config/line_format.h"
#include "tandem/config/run_config.h"

namespace tandem {

/// Returns whether a line is due after `steps` steps of an epoch. `last`: it was the
/// last step.
bool is_line_due(const OutputOptions& options, int64_t steps, bool last);

/// Returns whether config.output.log_ranks lets a rank report. `local_rank`: its number
/// on its host.
bool reports(const RunConfig& config, int rank, int local_rank);

/// Prints config.output.join_line before a rank meets the others, if the rank reports.
/// The address and port are those of `env`.
void print_join_line(const RunConfig& config, const RankEnv& env);

/// Prints a rank's progress on standard output: a progress bar on a terminal, otherwise
/// a line per report, or lines from the config's templates. Each line is one write, so
/// lines of several ranks do not mix.
class Progress {
 public:
  /// `first`: this is rank 0, which prints the lines of the run. `prints`: this rank
  /// prints reports.
  Progress(const RunConfig& config, bool first, bool prints);
  /// Ends the line of a bar if the run was interrupted.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Prints a report of training steps.
  void show(const LineValues& values);

  /// Prints the mean training loss of an epoch with config.output.epoch_line. Without
  /// that template it prints a line on a terminal, because the bar leaves none. `done`:
  /// whether the epoch is complete.
  void epoch(const LineValues& values, bool done);

  /// Prints "Test set: Average loss: 0.0262, Accuracy: 9924/10000 (99%)" on rank 0.
  void show(const TestReport& report);

  /// Prints the last line on rank 0. With log_ranks = host and a template, it prints
  /// the line on each host.
  void end(const LineValues& values);

  /// Prints a line from a template of the config, or nothing if the template is empty.
  void line(
      const std::string& setting, const std::string& pattern, const LineValues& values);

  /// Prints a line on rank 0.
  void say(const std::string& line);

  /// Returns the stream that lost lines, and the reason: "standard output: Broken
  /// pipe";
  /// "" if all lines arrived. Log lines of this process count too.
  std::string lost() const;

 private:
  void print(const std::string& line);
  void draw(const LineValues& values);
  void write(const std::string& text);

  const RunConfig& config_;
  bool first_;
  bool prints_;
  // Draws a progress bar.
  bool draws_;
  // The bar is on the terminal's last line.
  bool drawn_ = false;
  // The first errno of standard output.
  int lost_ = 0;
};

}  // namespace tandem

#pragma once

#include <cstdint>
#include <string>

#include "tandem/base/rank_env.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/config/line_format.h"
#include "tandem/config/run_config.h"

namespace tandem {

/// Whether a line is due after so many steps of an epoch; `last`: there are no more.
bool is_line_due(const OutputOptions& options, int64_t steps, bool last);

/// Whether a rank reports, as config.output.log_ranks says. `local_rank`: its number on
/// its host.
bool reports(const RunConfig& config, int rank, int local_rank);

/// Prints config.output.join_line for a rank that is about to meet the others, if the
/// rank reports. The address and port are those of `env`.
void print_join_line(const RunConfig& config, const RankEnv& env);

/// Shows a rank's progress on standard output: one line that is drawn again and
/// again on a terminal, a line per report elsewhere, or what the config's templates
/// say. Each line is written at once, so ranks' lines do not mix.
class Progress {
 public:
  /// `first`: rank 0, which speaks for all; `prints`: reports are shown.
  Progress(const RunConfig& config, bool first, bool prints);
  /// Ends the line of a bar that is still drawn because the run was interrupted.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// A report of training steps.
  void show(const LineValues& values);

  /// Prints the mean training loss of an epoch with config.output.epoch_line. Without
  /// that template it prints a line on a terminal, because the bar leaves none. `done`:
  /// whether the epoch is complete.
  void epoch(const LineValues& values, bool done);

  /// "Test set: Average loss: 0.0262, Accuracy: 9924/10000 (99%)". Rank 0's.
  void show(const TestReport& report);

  /// The last line. Rank 0's; of each host, where hosts report and have a template.
  void end(const LineValues& values);

  /// A line from a template of the config, nothing when that is empty.
  void line(
      const std::string& setting, const std::string& pattern, const LineValues& values);

  /// A line of rank 0's own.
  void say(const std::string& line);

  /// Where printed lines were lost, and why: "standard output: Broken pipe"; "" when
  /// all arrived. Log lines of this process count too.
  std::string lost() const;

 private:
  void print(const std::string& line);
  void draw(const LineValues& values);
  void write(const std::string& text);

  const RunConfig& config_;
  bool first_;
  bool prints_;
  // Draws one line again and again.
  bool draws_;
  bool drawn_ = false;
  // The first errno of standard output.
  int lost_ = 0;
};

}  // namespace tandem

#pragma once

#include <cstdint>
#include <string>

#include "tandem/train/run_directory.h"

namespace tandem {

/// Shows rank 0's progress on standard output: one line that is drawn again and
/// again on a terminal, a line per report elsewhere.
class Progress {
 public:
  Progress(int64_t epochs, bool enabled);

  void show(const TrainReport& report);

  /// "Test set: Average loss: 0.0262, Accuracy: 9924/10000 (99%)".
  void show(const TestReport& report);

  /// A line of its own.
  void say(const std::string& line);

 private:
  void clear_line();

  int64_t epochs_;
  bool enabled_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace tandem

#pragma once

#include "tandem/checkpoint/run_directory.h"

namespace tandem {

/// Interface that receives the reports of a rank. On rank 0, these are the lines of
/// metrics.jsonl. Unlike an Observer, a listener cannot stop the run, and ranks need
/// not all have a listener.
///
/// Called from the thread that trains, which waits for the end of each call. An
/// exception ends the run.
class ReportListener {
 public:
  virtual ~ReportListener() = default;

  virtual void on_training(const TrainReport& report) = 0;
  virtual void on_evaluation(const TestReport& report) = 0;
};

}  // namespace tandem

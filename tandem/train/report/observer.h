#pragma once

#include <cstdint>
#include <string>

#include "tandem/checkpoint/run_directory.h"
#include "tandem/core/step_sums.h"

namespace tandem {

/// An optimizer step, of this rank. `sums` are of its own samples; sums.values() waits
/// for the device.
struct StepReport {
  // Epochs count from 0; steps are those done, in the epoch and since the run began.
  int64_t epoch = 0;
  int64_t step_in_epoch = 0;
  int64_t step = 0;
  double lr = 0;
  StepSums sums;
};

/// The training of an epoch: of all ranks together, or of this rank where ranks do not
/// make their steps together (averaging, Hogwild, an asynchronous server). Of a run
/// that goes on in the middle of an epoch it may be that of the rest.
struct EpochReport {
  int64_t epoch = 0;
  int64_t step = 0;
  double loss = 0;
  // Percent.
  double accuracy = 0;
};

/// What an observer wants of the run.
enum class Next { proceed, stop };

/// Watches a run from the program that trains, and may end it. Derive from it, override
/// what is of interest, and give it to train() on every rank or on none.
///
/// Each rank calls its own observer, in the order of the run, from the thread that
/// trains. What an observer throws leaves train() on that rank as it is, and ends the
/// run like any other failure. Stop, said on any rank, ends it on all at the same step:
/// after on_step() within about half a second, else at once. Such a run saves its
/// checkpoint, evaluates, and train() returns; --resume goes on from there.
class Observer {
 public:
  virtual ~Observer() = default;

  virtual Next on_step(const StepReport& /*step*/) {
    return Next::proceed;
  }
  virtual Next on_epoch(const EpochReport& /*epoch*/) {
    return Next::proceed;
  }
  /// The same report on every rank.
  virtual Next on_evaluation(const TestReport& /*test*/) {
    return Next::proceed;
  }
  /// A checkpoint is complete. Rank 0's only; its path. It is written while training
  /// goes on: steps may come between that which it was saved after and this.
  virtual void on_checkpoint(const std::string& /*path*/) {}
};

}  // namespace tandem

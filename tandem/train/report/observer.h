#pragma once

#include <cstdint>
#include <string>

#include "tandem/checkpoint/run_directory.h"
#include "tandem/core/step_sums.h"

namespace tandem {

/// Report of one optimizer step of this rank.
struct StepReport {
  // Index of the epoch, from 0.
  int64_t epoch = 0;
  // Number of completed steps of the epoch, and of the run.
  int64_t step_in_epoch = 0;
  int64_t step = 0;
  double lr = 0;
  // Sums over this rank's samples. sums.values() waits for the device.
  StepSums sums;
};

/// Training results of one epoch. They cover all ranks if the ranks wait for each other
/// in each step. Otherwise (averaging, Hogwild, an asynchronous server), they cover
/// only this rank. After a resume in the middle of an epoch, they may cover only the
/// rest of the epoch.
struct EpochReport {
  // Index of the epoch, from 0.
  int64_t epoch = 0;
  // Number of completed steps of the run.
  int64_t step = 0;
  // Mean training loss per sample; if a sample has several targets, per target.
  double loss = 0;
  // Metric of the loss, such as the accuracy, and its value on the training samples.
  const Metric* metric = &kAccuracy;
  double metric_value = 0;
};

/// An observer's decision about the run.
enum class Next { proceed, stop };

/// Interface through which a program observes a run and can stop the run. Derive a
/// class, override the functions of interest, and pass an object to train() on every
/// rank or on none.
///
/// Each rank calls the functions of its own observer from the thread that trains. If
/// the observer throws, train() rethrows the exception on that rank, and the run ends
/// as after any other failure. If the observer of any rank returns Next::stop, the run
/// stops on all ranks. If on_step() returned Next::stop, the run stops within about
/// half a second, or when the ranks next meet if they do not wait for each other in
/// each step. Otherwise it stops immediately. Then the run saves a checkpoint and
/// evaluates, and train() returns. --resume continues the run.
class Observer {
 public:
  virtual ~Observer() = default;

  /// Called after each step of this rank.
  virtual Next on_step(const StepReport& /*step*/) {
    return Next::proceed;
  }
  /// Called after each epoch, before its evaluation. Also called after an epoch that an
  /// observer has stopped.
  virtual Next on_epoch(const EpochReport& /*epoch*/) {
    return Next::proceed;
  }
  /// Called after each evaluation, with the same report on every rank.
  virtual Next on_evaluation(const TestReport& /*test*/) {
    return Next::proceed;
  }
  /// Called on rank 0 with the path of a complete checkpoint. Checkpoints that the run
  /// saves before an evaluation are not reported. Training continues while the
  /// checkpoint is written, so the run may already be some steps ahead of the
  /// checkpoint.
  virtual void on_checkpoint(const std::string& /*path*/) {}
};

}  // namespace tandem

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/options/training_options.h"
#include "tandem/core/arena.h"
#include "tandem/train/report/observer.h"

namespace tandem {

/// Detects convergence: a rank has converged if its loss improves by less than
/// `min_delta` from one epoch to the next. If ranks have different losses, they
/// converge separately. A converged rank no longer trains and only takes part in
/// collective calls. The run ends when all ranks that train on samples have converged.
class Convergence {
 public:
  /// Begins without a converged rank. If `min_delta` is 0, no rank converges. `reads`
  /// is true if this rank trains on samples.
  Convergence(Communicator& comm, double min_delta, bool reads);

  bool wanted() const {
    return min_delta_ > 0;
  }

  /// Compares this rank's mean loss of an epoch with its mean loss of the previous
  /// epoch. Returns whether this rank has converged in this epoch. Collective.
  bool note(double loss);

  /// Returns whether this rank has converged.
  bool mine() const;
  /// Returns whether any rank has converged.
  bool some() const;
  /// Returns whether all ranks that train on samples have converged.
  bool all() const;

  /// Returns the state for a checkpoint. The tensors share this object's memory.
  std::vector<NamedTensor> state() const {
    return {{"convergence", values_}};
  }

 private:
  double* values() const {
    return values_.data_ptr<double>();
  }

  Communicator& comm_;
  double min_delta_;
  bool reads_;
  // Four float64 values: the loss of the previous epoch, and the results of mine(),
  // some() and all().
  at::Tensor values_;
};

/// Implements early stopping: a run ends after `patience` consecutive evaluations
/// without a new lowest loss. If `patience` is 0, the run does not end early. Results
/// of evaluations are equal on all ranks, so the ranks make equal decisions without
/// communication.
class Patience {
 public:
  explicit Patience(int64_t patience) : patience_(patience) {}

  /// Counts an evaluation.
  void note(const TestReport& test) {
    if (test.loss < best_.loss) {
      best_ = {test.loss, test.step, 0};
    } else {
      ++best_.evaluations_since;
    }
  }

  bool exhausted() const {
    return patience_ > 0 && best_.evaluations_since >= patience_;
  }

  /// Returns the evaluation with the lowest loss, for a checkpoint.
  const BestTest& best() const {
    return best_;
  }
  void continue_from(const BestTest& best) {
    best_ = best;
  }

 private:
  int64_t patience_;
  BestTest best_;
};

/// Decides whether a run ends before its last epoch. Reasons are that training losses
/// have converged, that test losses no longer fall, or that the program's observer
/// stops the run. All ranks make equal decisions.
class RunEnd {
 public:
  /// Prepares the decisions. `reads` is true if this rank trains on samples. `observer`
  /// may be null.
  RunEnd(
      Communicator& comm, const TrainingOptions& options, bool reads,
      Observer* observer)
      : comm_(comm),
        convergence_(comm, options.min_delta, reads),
        patience_(options.patience),
        observer_(observer) {}

  Convergence& convergence() {
    return convergence_;
  }
  Patience& patience() {
    return patience_;
  }

  /// Returns whether the run ends now.
  bool now() const {
    return *reason() != '\0';
  }
  /// Returns the reason why the run ends: "converged", "patience" or "observer".
  /// Returns "" if the run continues.
  const char* reason() const;

  /// Calls Observer::on_step(). If it returns Next::stop, stop_requested() becomes true
  /// on this rank. Agreement::decide() then sends the request to all ranks, and each
  /// rank calls stop(). Not collective.
  void on_step(const StepReport& step);
  /// Calls Observer::on_epoch() if `trained` is true, which means that this process
  /// made steps of the epoch. Then decides with the other ranks whether the run stops.
  /// Collective.
  void on_epoch(const EpochReport& epoch, bool trained);
  /// Calls Observer::on_evaluation(), then decides with the other ranks whether the run
  /// stops. Collective.
  void on_evaluation(const TestReport& test);

  /// Returns whether this rank's observer has returned Next::stop.
  bool stop_requested() const {
    return stop_requested_;
  }
  /// Ends the run because an observer stopped the run. Call this function on all ranks.
  void stop() {
    stopped_ = true;
  }

 private:
  void agree();

  Communicator& comm_;
  Convergence convergence_;
  Patience patience_;
  Observer* observer_;
  bool stop_requested_ = false;
  bool stopped_ = false;
};

}  // namespace tandem

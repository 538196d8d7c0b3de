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

/// Detects convergence: a rank has converged if an epoch's loss improves by less than
/// `min_delta`. Ranks with their own losses converge separately, and then only take
/// part in collective calls. The run ends when all ranks have converged.
class Convergence {
 public:
  /// `min_delta`: 0 turns it off. `reads`: whether this rank trains on samples.
  Convergence(Communicator& comm, double min_delta, bool reads);

  bool wanted() const {
    return min_delta_ > 0;
  }

  /// Adds this rank's mean loss of an epoch. Returns whether this rank converged with
  /// this epoch. Collective.
  bool note(double loss);

  /// Returns whether this rank, some rank, all ranks have converged.
  bool mine() const;
  bool some() const;
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
  // Float64: the loss of the previous epoch, and mine(), some(), all().
  at::Tensor values_;
};

/// Early stopping: ends a run after `patience` evaluations without a new lowest test
/// loss; 0: never. Test results are the same on all ranks, so the ranks decide alike
/// without communication.
class Patience {
 public:
  explicit Patience(int64_t patience) : patience_(patience) {}

  /// Adds an evaluation. Returns whether its loss is the lowest yet.
  bool note(const TestReport& test) {
    const bool better = test.loss < best_.loss;
    if (better) {
      best_ = {test.loss, test.step, 0};
    } else {
      ++best_.evaluations_since;
    }
    return better;
  }

  bool exhausted() const {
    return patience_ > 0 && best_.evaluations_since >= patience_;
  }

  /// State for a checkpoint.
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

/// Decides, equally on all ranks, whether a run ends before its last epoch: because
/// training losses have converged, test losses no longer fall, or the program's
/// observer stops the run.
class RunEnd {
 public:
  /// `reads`: whether this rank trains on samples. `observer` may be null.
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

  /// Returns whether the run is over.
  bool now() const {
    return *reason() != '\0';
  }
  /// "converged", "patience" or "observer"; "" if the run is not over.
  const char* reason() const;

  /// Calls the observer. Its answer stays on this rank until the ranks agree: see
  /// stop_requested(), Agreement::decide() and stop(). Not collective.
  void on_step(const StepReport& step);
  /// The next two call the observer and are collective. `trained`: this process made
  /// steps of the epoch; otherwise the observer is not called.
  void on_epoch(const EpochReport& epoch, bool trained);
  void on_evaluation(const TestReport& test);
  void on_checkpoint(const std::string& path);

  /// Returns whether this rank's observer has returned Next::stop.
  bool stop_requested() const {
    return stop_requested_;
  }
  /// Ends the run for the observer. Call it on all ranks.
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

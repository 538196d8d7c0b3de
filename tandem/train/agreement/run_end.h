#pragma once

#include <string>

#include "tandem/config/options/training_options.h"
#include "tandem/train/agreement/convergence.h"
#include "tandem/train/agreement/patience.h"
#include "tandem/train/report/observer.h"

namespace tandem {

/// What ends a run before its last epoch, the same on all ranks: training losses that
/// have converged, test losses that no longer fall, the program's observer.
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

  /// Whether the run is over, and the reason: "converged", "patience", "observer"; ""
  /// while it is not.
  bool now() const {
    return *reason() != '\0';
  }
  const char* reason() const;

  /// Tells the observer. What it says to a step is known to this rank alone until the
  /// ranks agree (wish(), Agreement::decide(), stop()); the others are collective.
  void on_step(const StepReport& step);
  /// `trained`: here; an epoch whose steps were all another process's is not told.
  void on_epoch(const EpochReport& epoch, bool trained);
  void on_evaluation(const TestReport& test);
  void on_checkpoint(const std::string& path);

  bool wish() const {
    return wish_;
  }
  void stop() {
    stopped_ = true;
  }

 private:
  void agree();

  Communicator& comm_;
  Convergence convergence_;
  Patience patience_;
  Observer* observer_;
  bool wish_ = false;
  bool stopped_ = false;
};

}  // namespace tandem

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

/// Whose training has converged: a rank's has when an epoch's loss improves by less
/// than `min_delta`. Ranks that train alone converge alone, and then only take part in
/// what the others do together; the run ends when all have.
class Convergence {
 public:
  /// `min_delta` 0: never. `reads`: whether this rank trains on samples.
  Convergence(Communicator& comm, double min_delta, bool reads);

  bool wanted() const {
    return min_delta_ > 0;
  }

  /// This rank's mean loss of an epoch. Collective. True when this rank has just
  /// converged.
  bool note(double loss);

  bool mine() const;
  bool some() const;
  bool all() const;

  /// What a checkpoint keeps of it: the tensors are this object's own.
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
  // Float64: the loss of the epoch before, and whether this, some, all ranks have
  // converged.
  at::Tensor values_;
};

/// Early stopping: a run ends when its test loss has not been lower than the best for
/// `patience` evaluations; 0: never. Test results are of all ranks together, so that
/// each decides alike without asking.
class Patience {
 public:
  explicit Patience(int64_t patience) : patience_(patience) {}

  /// An evaluation of the run. True when it is the best so far.
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

  /// For a run that goes on.
  const BestTest& best() const {
    return best_;
  }
  void go_on_from(const BestTest& best) {
    best_ = best;
  }

 private:
  int64_t patience_;
  BestTest best_;
};

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

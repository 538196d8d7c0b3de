#pragma once

#include <cstdint>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/run_directory.h"

namespace tandem {

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

}  // namespace tandem

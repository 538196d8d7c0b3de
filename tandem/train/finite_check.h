#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// Checks that parameters, buffers and results of evaluations are finite, so that no
/// run succeeds with NaN. All ranks throw equal errors. Not thread-safe.
class FiniteCheck {
 public:
  /// Uses the tensors of `arenas`, which must outlive the object, as must `comm`.
  /// Buffers that are infinite now, such as the mask of attention, may stay infinite.
  FiniteCheck(const ModelArenas& arenas, Communicator& comm);

  /// Throws ValuesNotFinite if a tensor of any rank is not finite. `step` is the number
  /// of completed steps. Collective.
  void check_model(int64_t step) const;

 private:
  // Returns the name of the first tensor of this rank that is not finite, or "".
  std::string first_bad() const;

  std::vector<NamedTensor> state_;
  Communicator& comm_;
  std::set<std::string> infinite_;
};

/// Returns the error for an evaluation whose loss is not finite. `checkpoint` is the
/// path of the newest checkpoint of an earlier step; "" if there is none.
Error stopped_for_evaluation(const TestReport& report, const std::string& checkpoint);

}  // namespace tandem

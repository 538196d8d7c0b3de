#pragma once

#include <functional>
#include <optional>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/core/placement.h"
#include "tandem/data/dataset.h"
#include "tandem/data/loader.h"
#include "tandem/train/assembly.h"

namespace tandem {

/// Evaluates the model of a run during the run and at its end. The arguments of the
/// constructor must outlive the object.
class RunEvaluation {
 public:
  RunEvaluation(
      const RunConfig& config, const DatasetSplits& data, const Assembly& parts,
      Communicator& comm, const Placement& placement);

  bool has_validation() const {
    return data_.validation.size > 0;
  }

  /// Returns the part on which the run is evaluated before its end.
  const Dataset& watched() const {
    return has_validation() ? data_.validation : data_.test;
  }

  /// Evaluates the model on `part`, the test part or the validation part. `position` is
  /// the run's position. A dry run evaluates a few batches. Calls `stop` about twice a
  /// second, and returns nullopt if it returns true (evaluate_unless()). Collective.
  [[nodiscard]] std::optional<TestReport> evaluate(
      const Dataset& part, const Position& position, const std::function<bool()>& stop);

 private:
  const RunConfig& config_;
  const DatasetSplits& data_;
  const Assembly& parts_;
  Communicator& comm_;
  const Placement& placement_;
  LoaderOptions loading_;
};

}  // namespace tandem

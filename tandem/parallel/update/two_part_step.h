#pragma once

#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {

/// A second base of strategies whose step is two parts, so that a device can capture
/// the second once and then repeat it. train_step() is one after the other.
class TwoPartStep {
 public:
  /// Brings to the device what differs from step to step, in one copy. `micro_batches`:
  /// at least one.
  virtual void begin_step(
      const std::vector<Batch>& micro_batches, const StepContext& context) = 0;

  /// All the rest. Of batches that are on the device, and of equal sizes, it puts the
  /// same work there each time, over the same memory where that of the batches is the
  /// same; it changes nothing else but what is on the device.
  virtual StepSums finish_step(
      const std::vector<Batch>& micro_batches, const StepContext& context) = 0;

  /// The ranks that meet in finish_step().
  virtual Communicator& communicator() = 0;

 protected:
  ~TwoPartStep() = default;
};

}  // namespace tandem

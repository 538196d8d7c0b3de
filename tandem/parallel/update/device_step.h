#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/core/step_scalars.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {

/// The StepScalars of one step after the other, and on a device that is not main memory
/// the records of its micro-batches, where the parameters are. What kernels and
/// LibTorch's operators write there stays there: nothing waits for the device. Steps of
/// as many micro-batches have the same memory. Not thread-safe.
class DeviceStep {
 public:
  /// Where these arenas' parameters are.
  explicit DeviceStep(const ModelArenas& arenas);

  /// The next step: clips nothing and is not left out. `step` counts from 1.
  void begin(double lr, int64_t step);

  /// The same of a context's step, with the micro-batches' records: one copy.
  void begin(const StepContext& context, const std::vector<Batch>& micro_batches);

  /// For kernels of the device; only those in main memory may be looked at here.
  StepScalars& scalars();

  /// StepScalars::gradient_scale, float64, no dimensions.
  at::Tensor gradient_scale();

  /// A micro-batch's StepContext::record; undefined in main memory.
  at::Tensor record(size_t micro_batch) const;

 private:
  // A StepScalars and this many records behind it, on this step's.
  void bring(const StepScalars& next, const std::vector<BatchRecord>& records);

  const ModelArenas& arenas_;
  // Of this step: a StepScalars, then records, their words as int64.
  at::Tensor words_;
  // By the number of records: a captured step keeps the addresses.
  std::map<size_t, at::Tensor> all_words_;
};

}  // namespace tandem

#pragma once

#include <vector>

#include "tandem/parallel/strategy.h"
#include "tandem/parallel/update/device_step.h"

namespace tandem {

int64_t count_samples(const std::vector<Batch>& micro_batches);

/// This rank's gradients of all micro-batches, added up in the arena, each loss times
/// context.loss_weight. Returns what the executor found. `step`: has their records;
/// null: nobody has.
StepSums add_up_gradients(
    const StrategyParts& parts, const std::vector<Batch>& micro_batches,
    const StepContext& context, const DeviceStep* step = nullptr);

/// An optimizer step of a rank that trains by itself: on the mean (or sum) of the
/// loss over its own samples, no other rank involved. Clips at options.clip_norm.
///
/// `micro_batches`: at least one. `step` is the strategy's own.
StepSums step_alone(
    const StrategyOptions& options, const StrategyParts& parts, DeviceStep& step,
    const std::vector<Batch>& micro_batches, const StepContext& context);

}  // namespace tandem

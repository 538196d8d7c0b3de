#pragma once

#include <vector>

#include "tandem/parallel/strategy.h"

namespace tandem {

int64_t count_samples(const std::vector<Batch>& micro_batches);

/// This rank's gradients of all micro-batches, added up in the arena, each loss times
/// context.loss_weight. Returns what the executor found.
StepSums add_up_gradients(
    const StrategyParts& parts, const std::vector<Batch>& micro_batches,
    const StepContext& context);

/// An optimizer step of a rank that trains by itself: on the mean (or sum) of the
/// loss over its own samples, no other rank involved. Clips at options.clip_norm.
///
/// `micro_batches`: at least one.
StepSums local_step(
    const StrategyOptions& options, const StrategyParts& parts,
    const std::vector<Batch>& micro_batches, const StepContext& context);

}  // namespace tandem

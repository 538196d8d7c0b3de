#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tandem/parallel/strategy.h"

namespace tandem {

/// An optimizer step of a rank that trains by itself: on the mean (or sum) of the
/// loss over its own samples, no other rank involved. Clips at options.clip_norm.
///
/// `micro_batches`: at least one. Returns {summed loss, right answers, samples},
/// float64.
at::Tensor step_alone(
    const StrategyOptions& options, const StrategyParts& parts,
    const std::vector<Batch>& micro_batches, const StepContext& context);

}  // namespace tandem

#pragma once

#include <cstdint>
#include <vector>

#include "tandem/parallel/strategy.h"

namespace tandem {

/// What a stage does with one micro-batch.
struct StageTask {
  enum class Kind { forward, backward };
  Kind kind = Kind::forward;
  int64_t micro_batch = 0;
};

/// A stage's tasks of one step, in order. Pure functions.
///
/// Both schedules take micro-batches in order in both directions, so gradients add up
/// in the order of gradient accumulation and have its bits.
///
/// `gpipe`: all forwards, then all backwards. Huang et al., "GPipe: Efficient Training
/// of Giant Neural Networks using Pipeline Parallelism", NeurIPS 2019.
/// `one_forward_one_backward`: after as many forwards as there are stages after this
/// one, a forward and a backward in turn. PipeDream-Flush of Narayanan et al.,
/// "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
/// SC 2021. It takes the same time and keeps fewer activations.
std::vector<StageTask> plan_stage(
    PipelineSchedule schedule, int64_t stages, int64_t stage, int64_t micro_batches);

/// The most micro-batches of which a stage keeps activations: all with gpipe, at most
/// stages - stage with 1F1B.
int64_t most_in_flight(
    PipelineSchedule schedule, int64_t stages, int64_t stage, int64_t micro_batches);

}  // namespace tandem

#pragma once

#include <cstdint>
#include <vector>

#include "tandem/parallel/strategy.h"

namespace tandem {

/// A forward or backward pass of one micro-batch on a stage.
struct StageTask {
  enum class Kind { forward, backward };
  Kind kind = Kind::forward;
  int64_t micro_batch = 0;
};

/// Returns the tasks of a stage in one step, in the order of execution.
///
/// Both schedules run forward, and also backward, in the order of the micro-batches.
/// Gradients are therefore summed in the same order as in gradient accumulation, with
/// equal bits.
///
/// - `gpipe`: all forwards, then all backwards. Source: Huang et al., "GPipe: Efficient
///   Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS 2019.
/// - `one_forward_one_backward`: as many forwards as there are later stages, then
///   alternately a forward and a backward, then the remaining backwards. It needs the
///   same time as `gpipe` and keeps fewer activations. Source: PipeDream-Flush in
///   Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters
///   Using Megatron-LM", SC 2021.
std::vector<StageTask> plan_stage(
    PipelineSchedule schedule, int64_t stages, int64_t stage, int64_t micro_batches);

/// Returns the maximum number of micro-batches whose activations a stage keeps: all
/// micro-batches with `gpipe`, at most stages - stage with `one_forward_one_backward`.
int64_t most_in_flight(
    PipelineSchedule schedule, int64_t stages, int64_t stage, int64_t micro_batches);

}  // namespace tandem

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem {

/// Samples of one micro-batch.
struct Batch {
  // One row per sample: float32, or int64 if the inputs are indices. On the later
  // stages of a pipeline, the activations of the previous stage.
  at::Tensor inputs;
  // Targets of the samples. Classes are int64, one per sample or one per position.
  // Values are float32.
  at::Tensor targets;
  // Indices of the samples in the data set, int64, on the CPU. Undefined if unknown.
  at::Tensor samples;
  // Sample i has the global position first_position + i * position_stride in its epoch
  // (sampler.h). The position determines the sample's dropout masks.
  int64_t first_position = 0;
  int64_t position_stride = 1;
  // Global position of the first sample of the optimizer step, over all shards and
  // micro-batches. It determines random numbers that belong to no sample.
  int64_t step_position = 0;
  // Number of targets in this batch that do not count in the loss, because their class
  // is Loss::ignore_index.
  int64_t ignored = 0;
  // Number of targets that count in the loss in the whole optimizer step, over all
  // shards and micro-batches: one per sample, or one per position.
  int64_t global_count = 0;

  int64_t count() const {
    return inputs.size(0);
  }
};

}  // namespace tandem

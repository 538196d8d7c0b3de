#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem {

/// Samples of one micro-batch.
struct Batch {
  // Images: float32, samples x channels x height x width. On the later stages of a
  // pipeline, the activations of the previous stage.
  at::Tensor inputs;
  // Classes of the samples: int64, one per sample. With the loss mse, floating-point
  // targets.
  at::Tensor targets;
  // Indices of the samples in the data set, int64, on the CPU. Undefined if unknown.
  at::Tensor samples;
  // Sample i has the global position first_position + i * position_stride in its epoch
  // (sampler.h). The position determines the sample's dropout masks.
  int64_t first_position = 0;
  int64_t position_stride = 1;
  // Number of samples of this batch with the target Loss::ignore_index, which do not
  // count in the loss.
  int64_t ignored = 0;
  // Number of samples that count in the loss in the whole optimizer step, over all
  // shards and micro-batches.
  int64_t global_count = 0;

  int64_t count() const {
    return inputs.size(0);
  }
};

}  // namespace tandem

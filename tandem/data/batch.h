#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem {

/// The samples of one micro-batch.
struct Batch {
  // float32, samples x channels x height x width; inside a pipeline the activations of
  // the previous stage.
  at::Tensor inputs;
  // int64, one class per sample; or float targets for MSE.
  at::Tensor targets;
  // int64, on the CPU: numbers of these samples in the data set. Undefined: unknown.
  at::Tensor samples;
  // Sample i has global position first_position + i * position_stride in its epoch
  // (sampler.h). Dropout masks follow from it.
  int64_t first_position = 0;
  int64_t position_stride = 1;
  // Samples of the whole optimizer step: all shards and micro-batches together.
  int64_t global_count = 0;

  int64_t count() const {
    return inputs.size(0);
  }
};

}  // namespace tandem

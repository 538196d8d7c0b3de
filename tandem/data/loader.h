#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/sampler.h"

namespace tandem {

/// What one step works on.
struct Batch {
  // float32, samples x channels x height x width; inside a pipeline the
  // activations that came from the stage before.
  at::Tensor inputs;
  // int64, one class per sample; or float targets for MSE.
  at::Tensor targets;
  // Sample i has global position first_position + i * position_stride in its
  // epoch (sampler.h). Dropout masks follow from it.
  int64_t first_position = 0;
  int64_t position_stride = 1;
  // Samples in this step's batch of all shards together.
  int64_t global_count = 0;

  int64_t count() const {
    return inputs.size(0);
  }
};

struct LoaderOptions {
  // Samples per batch of this shard.
  int64_t batch_size = 64;
  // A pixel p becomes (p / 255 - mean) / std, in float32 as torchvision does.
  double mean = 0.1307;
  double std = 0.3081;
  // Black pixels added on each side before normalisation.
  int64_t pad = 0;

  // --- speed ---
  // Batches that stay valid at a time; the memory is used again after that.
  int64_t num_buffers = 2;
};

/// Batches of one shard of a data set. It owns the epoch: the order follows
/// from (seed, epoch), there is no set_epoch to forget. Gathers and normalises
/// in one pass from bytes. Not thread-safe; deterministic.
class Loader {
 public:
  /// Throws ConfigError for sizes that cannot be.
  Loader(
      const Dataset& dataset, const SamplerOptions& sampler,
      const LoaderOptions& options);

  int64_t num_batches() const {
    return num_batches_;
  }

  /// Goes to a batch of an epoch. Any order.
  void seek(int64_t epoch, int64_t batch = 0);

  /// The next batch, or false at the end of the epoch. The tensors are valid
  /// until num_buffers more batches were taken.
  bool next(Batch& batch);

 private:
  // Samples of all shards from their place `first` on, at most a batch of each.
  int64_t global_count(int64_t first) const;
  void gather(const int64_t* indices, int64_t count, float* out) const;

  Dataset dataset_;
  SamplerOptions sampler_;
  LoaderOptions options_;
  int64_t num_batches_;
  // What a pixel of value p becomes.
  std::vector<float> normalised_;
  std::vector<Batch> buffers_;
  std::vector<int64_t> indices_;
  int64_t epoch_ = -1;
  int64_t batch_ = 0;
  size_t next_buffer_ = 0;
};

}  // namespace tandem

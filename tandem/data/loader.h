#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/device_batches.h"
#include "tandem/data/device_images.h"
#include "tandem/data/normalise.h"
#include "tandem/data/sampler.h"

namespace tandem {

/// What one step works on.
struct Batch {
  // float32, samples x channels x height x width; inside a pipeline the
  // activations that came from the stage before.
  at::Tensor inputs;
  // int64, one class per sample; or float targets for MSE.
  at::Tensor targets;
  // int64, which samples of the data set these are. Undefined where nobody knows.
  at::Tensor samples;
  // Sample i has global position first_position + i * position_stride in its
  // epoch (sampler.h). Dropout masks follow from it.
  int64_t first_position = 0;
  int64_t position_stride = 1;
  // Samples of the whole optimizer step: all shards and micro-batches together.
  int64_t global_count = 0;

  int64_t count() const {
    return inputs.size(0);
  }
};

struct LoaderOptions {
  // Samples per micro-batch of this shard; where the sampler divides batches, of all
  // shards.
  int64_t batch_size = 64;
  // Micro-batches per optimizer step (gradient accumulation). A step's samples are
  // dealt to them in turn, as they are to shards: n ranks see the same batches as one
  // rank with n times as many micro-batches. SamplerOptions::batch, where it is set, is
  // batch_size times this.
  int64_t micro_batches = 1;
  // Also give a batch without samples where another shard's has some, so that every
  // rank makes the same number of forward passes.
  bool empty_batches = false;
  // A pixel p becomes (p / 255 - mean) / std, in float32 as torchvision does.
  double mean = 0.1307;
  double std = 0.3081;
  // Black pixels added on each side before normalisation.
  int64_t pad = 0;

  // Batches are made on its device, but for `samples`. Null: in main memory.
  std::shared_ptr<const DeviceImages> images;

  // --- speed ---
  // How many batches are valid at a time; then their memory is used again.
  int64_t num_buffers = 2;
};

/// Batches of one shard of a data set. It owns the epoch: the order follows from (seed,
/// epoch), so there is no set_epoch to forget. It gathers and normalises bytes in one
/// vectorised pass, into memory that it reuses. Not thread-safe; deterministic.
class Loader {
 public:
  /// Throws ConfigError for impossible sizes.
  Loader(
      const Dataset& dataset, const SamplerOptions& sampler,
      const LoaderOptions& options);

  /// Micro-batches of this shard from the place of the last seek() to the end.
  int64_t num_batches() const;

  /// Optimizer steps from there to the end: the same for all shards, also when the
  /// last step has samples for some of them only.
  int64_t num_steps() const;

  /// Global position after the last sample of all shards.
  int64_t end_position() const {
    return tandem::end_position(sampler_);
  }

  /// Whether batches are made on a device that has the data set's bytes, and whether on
  /// one that gets each batch's.
  bool on_device() const {
    return options_.images != nullptr && options_.images->are_there();
  }
  bool sends_bytes() const {
    return options_.images != nullptr && !options_.images->are_there();
  }

  /// Goes to a global position of an epoch (sampler.h). Any order.
  void seek(int64_t epoch, int64_t first_position = 0);

  /// The next micro-batch, or false at the end of the epoch. Where the sampler divides
  /// batches also when the step has none, or no more, for this shard; the call after
  /// that is about the next step. The tensors are valid until num_buffers more batches
  /// have been taken; on a device, with a buffer for each micro-batch, until the next
  /// step has that one: then those of equal sizes lie in the same place each step.
  [[nodiscard]] bool next(Batch& batch);

 private:
  bool divides() const {
    return sampler_.batch > 0;
  }
  // Of a step that is not an epoch's last: all shards' samples, and this shard's.
  int64_t samples_of_all() const;
  int64_t samples_per_step() const;
  // Of the current step: all shards' samples, and this shard's.
  int64_t global_count() const;
  int64_t own_count() const;
  // Batches in main memory.
  void fill(const Batch& batch) const;
  void gather(const int64_t* indices, int64_t count, float* out) const;
  // Of the epoch's batches on a device.
  std::vector<BatchPlace> places() const;
  // Of the batch to come.
  size_t take_buffer();

  Dataset dataset_;
  SamplerOptions sampler_;
  LoaderOptions options_;
  Normaliser normalise_;
  // Null in main memory.
  std::unique_ptr<DeviceBatches> on_device_;
  std::vector<Batch> buffers_;
  std::vector<int64_t> indices_;
  int64_t epoch_ = -1;
  // The next micro-batch: steps since seek(), and which of the step's.
  int64_t step_ = 0;
  int64_t micro_ = 0;
  size_t next_buffer_ = 0;
};

}  // namespace tandem

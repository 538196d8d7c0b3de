#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tandem/data/batch.h"
#include "tandem/data/dataset.h"
#include "tandem/data/device_images.h"
#include "tandem/data/normalise.h"
#include "tandem/data/sampler.h"

namespace tandem {

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

  // The data set's bytes on a device, where inputs and targets are then made. Null: on
  // the CPU.
  std::shared_ptr<const DeviceImages> images;

  // --- speed ---
  // Number of batches that are valid at a time; then their memory is reused.
  int64_t num_buffers = 2;
  // Batches on the CPU are in pinned memory, from which CUDA copies without the host
  // waiting. Each batch has memory of its own then.
  bool pinned = false;
};

/// Sets where a loader makes batches for a model on `placement`: on the device if it
/// has room for the data set's bytes (copy_to_device), else in memory from which it
/// copies them.
void use_device(
    LoaderOptions& options, const Dataset& data, const Placement& placement);

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

  /// Whether batches are made on a device.
  bool on_device() const {
    return options_.images != nullptr;
  }

  /// Goes to a global position of an epoch (sampler.h). Any order.
  void seek(int64_t epoch, int64_t first_position = 0);

  /// The next micro-batch, or false at the end of the epoch. Where the sampler divides
  /// batches also when the step has none, or no more, for this shard; the call after
  /// that is about the next step. The tensors are valid until num_buffers more batches
  /// have been taken.
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
  // Whether the current step has one more for this shard.
  bool has_micro_batch() const;
  // Memory for a batch of `count` samples on the CPU; inputs and targets of none where
  // they are made on a device.
  Batch buffer_of(int64_t count) const;
  // The next batch's memory, in turn.
  Batch take_buffer(int64_t count);
  void fill_on_cpu(const Batch& batch) const;
  void gather(const int64_t* indices, int64_t count, float* out) const;
  // Makes inputs and targets of the samples `first`, `first` + `stride`, ... of this
  // shard's indices.
  void make_on_device(Batch& batch, int64_t first, int64_t stride) const;

  Dataset dataset_;
  SamplerOptions sampler_;
  LoaderOptions options_;
  Normaliser normalise_;
  std::vector<Batch> buffers_;
  std::vector<int64_t> indices_;
  // On the device of options_.images, undefined without: places of these samples among
  // the held images, int64; and the value of each of the 256 pixels, float32.
  at::Tensor held_indices_;
  at::Tensor table_;
  // Largest number of samples in a batch.
  int64_t most_samples_ = 0;
  int64_t epoch_ = -1;
  // The next micro-batch: steps since seek(), and which of the step's.
  int64_t step_ = 0;
  int64_t micro_ = 0;
  size_t next_buffer_ = 0;
};

}  // namespace tandem

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

/// Settings of a loader.
struct LoaderOptions {
  // Number of samples per micro-batch: of this shard, or of all shards together if the
  // sampler divides batches (SamplerOptions::batch).
  int64_t batch_size = 64;
  // Number of micro-batches per optimizer step (gradient accumulation). The samples of
  // a step are distributed to its micro-batches round-robin, as samples are to shards.
  // So n ranks see the same batches as one rank with n times as many micro-batches.
  // SamplerOptions::batch, if it is not 0, must be batch_size times this number.
  int64_t micro_batches = 1;
  // True: next() also returns a batch without samples if another shard's batch has
  // samples, so that every rank makes the same number of forward passes.
  bool empty_batches = false;
  // Normalization: a pixel p becomes (p / 255 - mean) / std, in float32 as in
  // torchvision.
  double mean = 0.1307;
  double std = 0.3081;
  // Number of black pixels added on each side before the normalization.
  int64_t pad = 0;

  // Bytes of the data set on a device, on which the loader then makes inputs and
  // targets. Null: the loader makes batches on the CPU.
  std::shared_ptr<const DeviceImages> images;

  // Number of batches that are valid at the same time. The loader reuses the memory of
  // older batches.
  int64_t num_buffers = 2;
  // True: batches on the CPU are in pinned memory, from which CUDA copies without
  // blocking the host. Each batch then has separate memory.
  bool pinned = false;
};

/// Sets `images` and `pinned` for a model on `placement`. The loader makes batches on
/// the device if the device has room for the data set's bytes (copy_to_device()).
/// Otherwise it makes them in main memory, from which the caller copies them.
void use_device(
    LoaderOptions& options, const Dataset& data, const Placement& placement);

/// Makes batches of one shard of a data set.
///
/// seek() sets the epoch, and the order of samples depends only on (seed, epoch). So
/// there is no set_epoch() that a program could forget to call. The loader gathers and
/// normalizes bytes in one vectorized pass, into memory that it reuses. Not
/// thread-safe; deterministic.
class Loader {
 public:
  /// Throws ConfigError for invalid sizes.
  Loader(
      const Dataset& dataset, const SamplerOptions& sampler,
      const LoaderOptions& options);

  /// Returns the number of micro-batches of this shard from the last seek() to the end
  /// of the epoch.
  int64_t num_batches() const;

  /// Returns the number of optimizer steps from the last seek() to the end of the
  /// epoch. It is equal for all shards, even if only some have samples in the last
  /// step.
  int64_t num_steps() const;

  /// Returns the global position after the last sample of all shards.
  int64_t end_position() const {
    return tandem::end_position(sampler_);
  }

  /// Returns whether batches are made on a device.
  bool on_device() const {
    return options_.images != nullptr;
  }

  /// Moves to any global position (sampler.h) of any epoch.
  void seek(int64_t epoch, int64_t first_position = 0);

  /// Makes the next micro-batch. Returns false at the end of the epoch. If the sampler
  /// divides batches, also returns false if the current step has no more micro-batches
  /// for this shard. The next call then starts the next step. The tensors are valid
  /// until num_buffers more batches have been made.
  [[nodiscard]] bool next(Batch& batch);

 private:
  bool divides() const {
    return sampler_.batch > 0;
  }
  // Returns the number of samples in a step that is not the last of an epoch: of all
  // shards, and of this shard.
  int64_t samples_of_all() const;
  int64_t samples_per_step() const;
  // Returns the number of samples in the current step: of all shards, and of this
  // shard.
  int64_t global_count() const;
  int64_t own_count() const;
  // Returns whether the current step has another micro-batch for this shard.
  bool has_micro_batch() const;
  // Allocates memory for a batch of `count` samples on the CPU. Allocates no inputs and
  // targets if they are made on a device.
  Batch buffer_of(int64_t count) const;
  // Returns memory for the next batch, of `count` samples. Reuses the buffers
  // round-robin.
  Batch take_buffer(int64_t count);
  void fill_on_cpu(const Batch& batch) const;
  void gather(const int64_t* indices, int64_t count, float* out) const;
  // Makes the inputs and targets of `batch` on the device. Its samples have the places
  // `first`, `first` + `stride`, ... in this shard's indices.
  void make_on_device(Batch& batch, int64_t first, int64_t stride) const;

  Dataset dataset_;
  SamplerOptions sampler_;
  LoaderOptions options_;
  Normaliser normalise_;
  std::vector<Batch> buffers_;
  std::vector<int64_t> indices_;
  // Tensors on the device of options_.images, undefined without images. held_indices_:
  // index of each sample in options_.images, int64. table_: normalized value of each of
  // the 256 pixel values, float32.
  at::Tensor held_indices_;
  at::Tensor table_;
  // Largest number of samples in a batch.
  int64_t most_samples_ = 0;
  int64_t epoch_ = -1;
  // Position of the next micro-batch: number of steps since seek(), and index in the
  // step.
  int64_t step_ = 0;
  int64_t micro_ = 0;
  size_t next_buffer_ = 0;
};

}  // namespace tandem

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
  // Samples per micro-batch of this shard; if the sampler divides batches, of all
  // shards.
  int64_t batch_size = 64;
  // Micro-batches per optimizer step (gradient accumulation). A step's samples are
  // dealt to micro-batches in turn, as they are to shards: n ranks see the same batches
  // as one rank with n times as many micro-batches. SamplerOptions::batch, if set, is
  // batch_size times this number.
  int64_t micro_batches = 1;
  // Return batches without samples if another shard's batch has some, so that every
  // rank makes the same number of forward passes.
  bool empty_batches = false;
  // A pixel p becomes (p / 255 - mean) / std, in float32 as in torchvision.
  double mean = 0.1307;
  double std = 0.3081;
  // Black pixels added on each side before normalisation.
  int64_t pad = 0;

  // Bytes of the data set on a device, where inputs and targets are made. Null: batches
  // are made on the CPU.
  std::shared_ptr<const DeviceImages> images;

  // Number of batches that are valid at a time; afterwards their memory is reused.
  int64_t num_buffers = 2;
  // Batches on the CPU are in pinned memory, from which CUDA copies without blocking
  // the host. Then each batch has separate memory.
  bool pinned = false;
};

/// Selects where a loader makes batches for a model on `placement`: on the device if it
/// has room for the data set's bytes (copy_to_device()), otherwise in main memory, from
/// which they are copied.
void use_device(
    LoaderOptions& options, const Dataset& data, const Placement& placement);

/// Makes batches of one shard of a data set.
///
/// The loader has the epoch: the order follows from (seed, epoch), so there is no
/// set_epoch() to forget. It gathers and normalizes bytes in one vectorized pass, into
/// memory that it reuses. Not thread-safe; deterministic.
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

  /// Moves to a global position of an epoch (sampler.h), in any order.
  void seek(int64_t epoch, int64_t first_position = 0);

  /// Makes the next micro-batch. Returns false at the end of the epoch. If the sampler
  /// divides batches, it also returns false if the current step has no more
  /// micro-batches for this shard; the next call then starts the next step. The tensors
  /// are valid until num_buffers more batches have been made.
  [[nodiscard]] bool next(Batch& batch);

 private:
  bool divides() const {
    return sampler_.batch > 0;
  }
  // Samples of a step, except an epoch's last: of all shards, and of this shard.
  int64_t samples_of_all() const;
  int64_t samples_per_step() const;
  // Samples of the current step: of all shards, and of this shard.
  int64_t global_count() const;
  int64_t own_count() const;
  // Returns whether the current step has another micro-batch for this shard.
  bool has_micro_batch() const;
  // Returns memory for a batch of `count` samples on the CPU, without inputs and
  // targets if they are made on a device.
  Batch buffer_of(int64_t count) const;
  // Returns the next batch's memory, in turn.
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
  // On the device of options_.images, otherwise undefined: indices of the samples among
  // the held images, int64; and the value of each of the 256 pixels, float32.
  at::Tensor held_indices_;
  at::Tensor table_;
  // Largest number of samples in a batch.
  int64_t most_samples_ = 0;
  int64_t epoch_ = -1;
  // The next micro-batch: steps since seek(), and its index in the step.
  int64_t step_ = 0;
  int64_t micro_ = 0;
  size_t next_buffer_ = 0;
};

}  // namespace tandem

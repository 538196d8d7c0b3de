#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/placement.h"
#include "tandem/data/batch.h"
#include "tandem/data/dataset.h"
#include "tandem/data/input_converter.h"
#include "tandem/data/sampler.h"
#include "tandem/data/target_scale.h"

namespace tandem {

/// A data set's images and labels on a device. Loaders share them and make their
/// batches on that device.
struct DeviceImages {
  // Images: uint8, samples x (channels * height * width).
  at::Tensor pixels;
  // Classes of the images: uint8 or int64, one per sample.
  at::Tensor labels;
};

/// Copies the images and labels of a data set to a device. The data set must have
/// images and one class per sample. Returns null if the device
/// is the CPU or the data set contains no samples. Also returns null if the bytes would
/// need more than half of the device's free memory.
std::shared_ptr<const DeviceImages> copy_to_device(
    const Dataset& data, const Placement& placement);

/// Decides for which batches of a mapped file the next batch is read ahead.
///
/// Reading ahead takes a system call per sample. If all pages are in memory, these
/// calls can take as long as the steps of a small network. So batches are read ahead
/// only after the thread has waited for pages: for kBatches batches. The batches after
/// them are not read ahead, which shows whether pages are still missing.
class ReadAheadRule {
 public:
  static constexpr int64_t kBatches = 1024;

  /// `major_faults`: num_major_faults() (mapped_file.h) at the start.
  explicit ReadAheadRule(int64_t major_faults) : major_faults_(major_faults) {}

  /// Returns whether to read the next batch ahead. `major_faults` is the current
  /// num_major_faults(). Call it once per batch.
  bool update(int64_t major_faults) {
    if (major_faults != major_faults_) {
      major_faults_ = major_faults;
      left_ = kBatches;
    }
    if (left_ == 0) {
      return false;
    }
    --left_;
    return true;
  }

 private:
  int64_t major_faults_;
  // Number of batches until reading ahead ends.
  int64_t left_ = 0;
};

/// Settings of a loader.
struct LoaderOptions : InputOptions {
  // Number of samples of this shard in a micro-batch. If the sampler divides batches
  // (SamplerOptions::batch), number of samples of all shards together.
  int64_t batch_size = 64;
  // Number of micro-batches per optimizer step (gradient accumulation). The samples of
  // a step are distributed to its micro-batches round-robin, as samples are to shards.
  // Therefore n ranks get the same batches as one rank with n times as many
  // micro-batches. If SamplerOptions::batch is not 0, it must be batch_size times
  // micro_batches.
  int64_t micro_batches = 1;
  // True: next() also returns a batch without samples if another shard's batch has
  // samples, so that every rank makes the same number of forward passes.
  bool empty_batches = false;
  // True: samples of a sequence (Dataset::is_sequence) start at random elements instead
  // of multiples of their length. The start depends on (seed, epoch, position).
  bool random_starts = false;
  // Class whose targets do not count in the loss (Loss::ignore_index). If a target has
  // this class, every shard needs the targets of all shards.
  int64_t ignore_index = -100;
  // Normalization of targets that are numbers (TargetScale).
  std::vector<double> target_mean = {0};
  std::vector<double> target_std = {1};

  // Images and labels on a device, on which the loader then makes its batches. Null:
  // the loader makes batches on the CPU.
  std::shared_ptr<const DeviceImages> images;
  // Reason why batches for a model on a device are made on the CPU; "" if they are not.
  std::string why_not_on_device;

  // Number of batches that are valid at the same time. The loader reuses the memory of
  // older batches.
  int64_t num_buffers = 2;
  // True: batches on the CPU are in pinned memory, from which CUDA copies without
  // blocking the host. Each batch then has separate memory.
  bool pinned = false;
};

/// Sets `images`, `why_not_on_device` and `pinned` for a model on `placement`. The
/// loader then makes batches on the device if these conditions hold:
/// - the samples are images with one class each and one mean, and not a subset of a
///   mapped file
/// - there is no augmentation
/// - the device has enough memory for the images (copy_to_device())
///
/// Otherwise the loader makes batches in main memory, and the caller copies them to the
/// device.
void use_device(
    LoaderOptions& options, const Dataset& data, const Placement& placement);

/// Makes batches of one shard of a data set.
///
/// seek() sets the epoch. The order of samples depends only on (seed, epoch), and
/// augmentation on (seed, epoch, position). The loader gathers and normalizes samples
/// in one vectorized pass, into memory that it reuses. If pages of a mapped file are
/// missing in memory, it makes the kernel read the samples of the next step while it
/// makes the batches of a step (ReadAheadRule). Not thread-safe; deterministic.
class Loader {
 public:
  /// Constructs a loader without an epoch; call seek() before next(). Throws
  /// ConfigError for invalid options.
  Loader(
      const Dataset& dataset, const SamplerOptions& sampler,
      const LoaderOptions& options);

  /// Returns the number of micro-batches of this shard, without empty batches, from the
  /// last seek() to the end of the epoch.
  int64_t num_batches() const;

  /// Returns the number of optimizer steps from the last seek() to the end of the
  /// epoch. It is equal for all shards, even if only some have samples in the last
  /// step.
  int64_t num_steps() const;

  /// Returns the global position after the last sample of all shards.
  int64_t end_position() const {
    return tandem::end_position(sampler_);
  }

  /// Returns LoaderOptions::why_not_on_device.
  const std::string& why_not_on_device() const {
    return options_.why_not_on_device;
  }

  /// Moves to a global position (sampler.h) in an epoch. The position and the epoch may
  /// be lower than the current values. `order` is the epoch whose order of samples is
  /// used; by default `epoch`.
  void seek(
      int64_t epoch, int64_t first_position = 0, std::optional<int64_t> order = {});

  /// Makes the next micro-batch. Returns false at the end of the epoch. If the sampler
  /// divides batches, also returns false if the current step has no more micro-batches
  /// for this shard. The next call then starts the next step. The tensors are valid
  /// until num_buffers more batches have been made. Throws DataError if an input of
  /// float32 is not finite.
  [[nodiscard]] bool next(Batch& batch);

 private:
  bool divides() const {
    return sampler_.batch > 0;
  }
  bool starts_at_random() const {
    return options_.random_starts && dataset_.is_sequence;
  }
  // Functions that return the number of samples in each step of an epoch except the
  // last step: samples of all shards, and of this shard.
  int64_t samples_of_all() const;
  int64_t samples_per_step() const;
  // Functions that return the number of samples in the current step: samples of all
  // shards, and of this shard.
  int64_t global_count() const;
  int64_t own_count() const;
  // Returns whether the current step has another micro-batch for this shard.
  bool has_micro_batch() const;
  // Allocates memory for a batch of `count` samples on the CPU. Allocates no inputs and
  // targets if they are made on a device.
  Batch buffer_of(int64_t count) const;
  // Returns the number of targets of the sample at a global position that are
  // Loss::ignore_index.
  int64_t ignored_in(int64_t sample, int64_t position) const;
  // Counts the ignored targets of each step from the last seek() to the end of the
  // epoch.
  void count_ignored();
  // Returns memory for the next batch, of `count` samples. Reuses the buffers
  // round-robin.
  Batch take_buffer(int64_t count);
  void fill_on_cpu(const Batch& batch);
  // The inputs or the targets of dataset_, with sizes that take too long to compute for
  // each sample.
  struct Part {
    explicit Part(const Samples& samples);
    const uint8_t* bytes;
    int64_t numel;
    int64_t element_bytes;
  };
  // Returns the first byte of a sample at a global position.
  const uint8_t* find(const Part& part, int64_t sample, int64_t position) const;
  void copy_targets(const Batch& batch) const;
  void convert(const Batch& batch, int64_t begin, int64_t end) const;
  // Makes the kernel start to read the samples in indices_ from `first` to `end` - 1.
  void read_ahead(int64_t first, int64_t end) const;
  // Makes the inputs and targets of `batch` on the device, from the samples at `first`,
  // `first` + `stride`, ... in indices_.
  void make_on_device(Batch& batch, int64_t first, int64_t stride) const;

  Dataset dataset_;
  SamplerOptions sampler_;
  LoaderOptions options_;
  Part inputs_;
  Part targets_;
  InputConverter converter_;
  TargetScale target_scale_;
  ReadAheadRule read_ahead_rule_;
  std::vector<Batch> buffers_;
  std::vector<int64_t> indices_;
  // Number of ignored targets of all shards in each step since seek(); empty if no
  // target is ignored.
  std::vector<int64_t> ignored_;
  // Tensors on the device of options_.images; undefined if it is null.
  // - held_indices_: index of each sample in options_.images, int64
  // - table_: normalized value of each of the 256 pixel values, float32
  at::Tensor held_indices_;
  at::Tensor table_;
  // Maximum number of samples in a batch.
  int64_t most_samples_ = 0;
  int64_t epoch_ = -1;
  int64_t order_ = -1;
  bool has_ignored_ = false;
  // Position of the next micro-batch: number of steps since seek(), and index in the
  // step.
  int64_t step_ = 0;
  int64_t micro_ = 0;
  size_t next_buffer_ = 0;
};

}  // namespace tandem

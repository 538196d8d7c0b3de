#pragma once

#include <torch/data/samplers/base.h>

#include <memory>
#include <vector>

#include "tandem/data/sampler.h"

namespace tandem {

/// Sampler for LibTorch's data loaders with the order of Python's
/// torch.utils.data.DistributedSampler.
///
///   tandem::DistributedSampler sampler({60000, comm.size(), comm.rank()});
///   auto loader = torch::data::make_data_loader(data, sampler, options);
///   for (int64_t epoch = 0; epoch < epochs; ++epoch) {
///     sampler.set_epoch(epoch);
///     for (auto& batch : *loader) {
///       ...
///     }
///   }
///
/// SamplerOptions has the arguments of PyTorch's class: `num_shards` (num_replicas),
/// `shard` (rank), `shuffle`, `seed`, and `tail` (drop_last: Tail::drop). LibTorch's
/// DistributedRandomSampler has another order, and ignores set_epoch() after the
/// sampler was passed to a loader.
///
/// Copies share their state, so set_epoch() also applies to the loader's copy. Call it
/// between two epochs. Not thread-safe; a loader calls the sampler only in the thread
/// that reads batches, for any number of workers.
///
/// tandem.h does not include this header, because it needs LibTorch's samplers.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Begins in epoch 0. Throws ConfigError for invalid options, or if `options.batch`
  /// is not 0.
  explicit DistributedSampler(const SamplerOptions& options);

  /// Selects the order of an epoch. Skips the samples before the global position
  /// `first_position` (sampler.h), which a run has already read, possibly with another
  /// number of ranks.
  void set_epoch(int64_t epoch, int64_t first_position = 0);
  /// Returns the epoch of set_epoch().
  int64_t epoch() const;

  /// Returns the number of this rank's samples, as Python's len(sampler).
  int64_t size() const;

  /// Returns the global position from which set_epoch() continues after the samples
  /// that next() has returned. A loader reads ahead, so it calls next() before it
  /// returns the batch.
  int64_t position() const;

  /// Begins the selected epoch again. `new_size` replaces the size of the data set.
  void reset(torch::optional<size_t> new_size = {}) override;

  /// Returns the next `batch_size` indices, fewer at the end, and nullopt after the
  /// last index.
  torch::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Writes epoch() and position(). load() continues there, also with another number of
  /// ranks.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State {
    SamplerOptions options;
    int64_t epoch = 0;
    std::vector<int64_t> indices;
    // Number of indices that next() has returned.
    size_t used = 0;
  };
  std::shared_ptr<State> state_;
};

}  // namespace tandem

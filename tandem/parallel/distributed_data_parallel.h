#pragma once

#include <memory>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

struct DistributedDataParallelOptions {
  // Round buckets to 16 bits on the way.
  CommHook comm_hook = CommHook::none;

  // --- speed ---
  // A bucket is sent when it holds this many bytes.
  int64_t bucket_bytes = 1024 * 1024;
};

/// Makes a LibTorch training loop of your own data-parallel: as PyTorch's
/// DistributedDataParallel, each backward() ends with the mean of all ranks'
/// gradients in .grad, reduced bucket by bucket while backward runs.
///
///   auto run = tandem::join_run();
///   tandem::DistributedDataParallel ddp(*net, *run.comm);
///   auto mine = tandem::shard_indices({60000, run.comm->size(), run.comm->rank()},
///   epoch);
///
/// All ranks start with rank 0's parameters and buffers. The parameters' memory
/// moves into an arena, so make this before the optimizer and do not move the
/// module afterwards. The module and the communicator outlive it. One backward at
/// a time; all ranks make the same number of them.
class DistributedDataParallel {
 public:
  /// `module`: a torch::nn::Module, or what has its named_parameters() and
  /// named_buffers(). Collective. Throws ConfigError when the ranks' models
  /// differ.
  template <typename Module>
  DistributedDataParallel(
      Module& module, Communicator& comm,
      const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(
            named(module.named_parameters()), named(module.named_buffers()), comm,
            options) {}

  DistributedDataParallel(
      const std::vector<NamedTensor>& parameters,
      const std::vector<NamedTensor>& buffers, Communicator& comm,
      const DistributedDataParallelOptions& options = {});
  ~DistributedDataParallel();

  /// False: gradients stay local and add up until it is true again (PyTorch's
  /// no_sync).
  void set_sync(bool sync);

  ModelArenas& arenas();

 private:
  template <typename Dict>
  static std::vector<NamedTensor> named(const Dict& dict) {
    std::vector<NamedTensor> list;
    for (const auto& item : dict) {
      list.push_back({item.key(), item.value()});
    }
    return list;
  }

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem

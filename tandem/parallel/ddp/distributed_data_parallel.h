#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"
#include "tandem/model/loss.h"
#include "tandem/parallel/reduce/bucket_hook.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

struct DistributedDataParallelOptions {
  // What buffers (batch norm's running statistics) become with each synced backward:
  // rank 0's (broadcast), the mean of those that are floating-point (average), or left
  // alone (off).
  BufferSync buffers = BufferSync::broadcast;
  // The mean of all ranks' gradients, or their sum. Add up micro-batches under
  // no_sync(): a second synced backward would sum what is a sum already.
  Reduction reduction = Reduction::mean;
  // Round buckets to 16 bits on the way.
  CommHook comm_hook = CommHook::none;
  // Reduces buckets instead, whatever `reduction` and `comm_hook` are.
  BucketHook bucket_hook = {};

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
/// All ranks start with rank 0's parameters and buffers. The parameters' memory moves
/// into an arena, so make this before the optimizer and do not change the module
/// afterwards: a backward throws ConfigError when a parameter or buffer was moved,
/// replaced, added or removed, or its requires_grad switched. (When all parameters are
/// new, backward does not reach this object: make it anew too.) The module and the
/// communicator outlive it. One backward at a time; all ranks make the same number of
/// them. After one that threw, .grad holds what was written so far, and the next runs
/// as usual, unless buckets had been sent: then it throws CommError.
///
/// **Buffers.** PyTorch broadcasts rank 0's before a forward, if the forward before it
/// was synced. A C++ module has no hook there; this does it when a synced backward
/// ends, so forwards begin with the same values, and you call the module itself. Rank
/// 0's values are PyTorch's at all times; the other ranks' are rank 0's after backward,
/// where PyTorch's are each rank's own until the next forward. So an evaluation right
/// after a step, on any rank, sees the values that a checkpoint of rank 0 holds.
/// Two differences remain, for a model that reads, in training mode, buffers that it
/// changes (batch norm does not): between two forwards without a synced backward call
/// sync_buffers(); and a second backward through a retained graph reads the values
/// that the first one left.
///
/// What PyTorch's has, and what is here. Rows with a + are compared with PyTorch's in
/// tests/parallel/ddp/ddp_parity_test.cpp.
///
/// | PyTorch                 | here                                               |
/// | ----------------------- | -------------------------------------------------- |
/// | module                  | + the first argument; it is not wrapped            |
/// | forward                 | + the module's own                                 |
/// | process_group           | + `comm`; Communicator::split() makes smaller ones |
/// | broadcast_buffers       | + `buffers`: broadcast (default), off; and average |
/// | bucket_cap_mb           | + `bucket_bytes`                                   |
/// | find_unused_parameters  | + always: what a rank does not use counts as zero  |
/// |                         | there, named once in a warning. What no rank uses  |
/// |                         | has a .grad of zeros (PyTorch: None), so weight    |
/// |                         | decay moves it: freeze it                          |
/// | gradient_as_bucket_view | + always                                           |
/// | static_graph            | + nothing to set: results do not depend on it      |
/// | no_sync                 | + no_sync(): a scope around backward               |
/// | register_comm_hook      | + `bucket_hook`; `comm_hook` for fp16 and bf16;    |
/// |                         | `reduction` for the hook that does not divide      |
/// | several backwards       | + gradients add up. Of one forward's, each is      |
/// |                         | reduced (PyTorch: the first only, silently)        |
/// | parameters_to_ignore    | + the other constructor, with lists that lack them |
/// | state_dict              | + the module's own names, without "module."        |
/// | create_graph            | values are reduced, without a graph (PyTorch:      |
/// |                         | warns, and fails for most modules)                 |
/// | join                    | no: a rank without data runs backward on a loss    |
/// |                         | times zero                                         |
/// | check_reduction         | no: deprecated                                     |
/// | device_ids,             | no: a rank has one device                          |
/// | output_device, dim      |                                                    |
class DistributedDataParallel {
 public:
  /// `module`: a torch::nn::Module, or anything with its named_parameters() and
  /// named_buffers(). Collective. Throws ConfigError when the ranks' models differ or
  /// have nothing trainable.
  template <typename Module>
  DistributedDataParallel(
      Module& module, Communicator& comm,
      const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(
            named(module.named_parameters()), named(module.named_buffers()), comm,
            options) {
    watch([&module] {
      auto all = named(module.named_parameters());
      const auto buffers = named(module.named_buffers());
      all.insert(all.end(), buffers.begin(), buffers.end());
      return all;
    });
  }

  DistributedDataParallel(
      const std::vector<NamedTensor>& parameters,
      const std::vector<NamedTensor>& buffers, Communicator& comm,
      const DistributedDataParallelOptions& options = {});
  ~DistributedDataParallel();

  /// As long as one lives, backwards are not synced: gradients stay local and add up,
  /// until a synced backward reduces all that is in .grad.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
    bool before_;
  };

  ///   {
  ///     const auto scope = ddp.no_sync();
  ///     loss_of(first).backward();
  ///   }
  ///   loss_of(second).backward();  // reduces both
  NoSync no_sync() {
    return NoSync(*this);
  }

  /// Brings buffers in step now, as the options say. A synced backward ends with it.
  /// Collective.
  void sync_buffers();

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

  // `list`: gives the module's current parameters and buffers.
  void watch(std::function<std::vector<NamedTensor>()> list);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem

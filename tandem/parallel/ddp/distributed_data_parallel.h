#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"
#include "tandem/core/module_state.h"
#include "tandem/model/loss.h"
#include "tandem/parallel/reduce/bucket_hook.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

class OwnShare;

/// Options of DistributedDataParallel.
struct DistributedDataParallelOptions {
  // Synchronization of buffers (batch norm's running statistics) after each backward
  // that reduces gradients. `broadcast` copies the buffers of rank 0, `average`
  // computes the mean of floating-point buffers, and `off` leaves buffers unchanged.
  BufferSync buffers = BufferSync::broadcast;
  // Mean or sum of all ranks' gradients. With several micro-batches per step, run all
  // micro-batches except the last one under no_sync(). Otherwise, the next reduction
  // would sum already reduced gradients again.
  Reduction reduction = Reduction::mean;
  // 16-bit format in which buckets are sent.
  CommHook comm_hook = CommHook::none;
  // Custom reduction of buckets, which replaces `reduction`. Cannot be combined with
  // `comm_hook`.
  BucketHook bucket_hook = {};

  // --- memory (equal on all ranks) ---
  // Values of which each rank keeps only its share (ZeRO stages 1 to 3). With a value
  // other than `none`, use a ShardedOptimizer (sharded_optimizer.h). `automatic` means
  // `none`.
  Sharding shard = Sharding::none;
  // Ranks that divide these values among them, as StrategyOptions::shard_group: hybrid
  // sharding, the counterpart of fully_shard() over a two-dimensional mesh.
  int64_t shard_group = StrategyOptions::kAllRanks;

  // --- uneven inputs (equal on all ranks) ---
  // True if ranks may have different numbers of batches and call join(). Each reducing
  // backward then exchanges one number more.
  bool join = false;

  // --- checks that the ranks train one model (equal on all ranks) ---
  // Reaction if parameters differ between ranks. Use `off` if a bucket hook gives ranks
  // different gradients.
  DriftCheck drift_check = DriftCheck::stop;
  // Compares the samplers of all ranks. Set it to false if each rank has its own data
  // instead of a share of common data.
  bool check_samples = true;
  // Number of reducing backwards between two checks. The backwards 1, 2, 4, 8, ... also
  // check. 0: only check() checks.
  int64_t check_every = 100;

  // --- speed ---
  // Maximum size of a bucket in bytes; a larger parameter has its own bucket.
  int64_t bucket_bytes = 1024 * 1024;
};

/// Adds data parallelism to a custom LibTorch training loop, as PyTorch's
/// DistributedDataParallel does: after each backward(), .grad has the mean of all
/// ranks' gradients. Buckets of gradients are reduced while backward runs.
///
///   auto run = tandem::join_run();
///   tandem::DistributedDataParallel ddp(*net, *run.comm);
///   auto mine = tandem::shard_indices(
///       {60000, run.comm->size(), run.comm->rank()}, epoch);
///
/// The constructor copies rank 0's parameters and buffers to all ranks and moves the
/// parameters' memory into an arena. So make the DistributedDataParallel before the
/// optimizer, and do not change the module afterwards. A later backward() throws
/// ConfigError if a parameter or buffer was moved, replaced, added or removed, or if
/// its requires_grad changed. (backward() cannot detect that all parameters were
/// replaced. In that case, make a new DistributedDataParallel.) The module and the
/// communicator must outlive this object.
///
/// Run one backward at a time, and the same number of backwards on all ranks. If a
/// backward throws, .grad has the values written so far. If buckets had already been
/// sent, the next backward throws CommError; otherwise it works as usual.
///
/// **Buffers.** PyTorch broadcasts rank 0's buffers before a forward, unless the
/// previous forward was under no_sync(). C++ modules have no hook before forward. This
/// class therefore broadcasts at the end of a reducing backward, which is a backward
/// outside no_sync(). Rank 0 has the same buffers as in PyTorch at all times. The other
/// ranks have rank 0's buffers after backward; in PyTorch, they keep their own buffers
/// until the next forward. So an evaluation after a step uses the buffers of rank 0's
/// checkpoint on every rank.
///
/// **Sharding.** With `shard`, a reducing backward gives each rank the gradients of its
/// share only, and sets the others to zero. The values are flat parts of parameters
/// (own_parameters()). `optimizer` saves memory for the optimizer's state, `gradients`
/// also for gradients. With `parameters`, a rank keeps only its share of the parameters
/// too: it gathers others when operators of a pass() use them, and releases them
/// afterwards. An operator that uses incomplete parameters outside of a pass throws
/// ConfigError. Create, use and destroy this object in one thread then. All ranks use
/// the parameters in the same order in each pass. Over shared memory and between
/// threads, results have the bits of `none`.
///
/// **Checks.** Regularly (`check_every`), a backward compares hashes of all ranks'
/// parameters, and the ranks' calls of shard_indices(), DistributedSampler and Loader.
/// It throws an Error that names the ranks if parameters differ, or if ranks read the
/// same samples or use different samplers. If ranks have equal gradients in the first
/// backward, it logs a warning. If a rank reads samples but trains a copy of the
/// module, check() throws, and the destructor logs an error. If a rank makes fewer
/// backwards, the other ranks throw CommError when that rank leaves or calls check().
///
/// Two differences remain for a model that changes buffers and reads them in training
/// mode (batch norm does not read them). If no reducing backward runs between two
/// forwards, buffers are not synchronized; call sync_buffers() between the forwards. A
/// second backward through a retained graph reads the buffers that the first backward
/// has synchronized.
///
/// The table lists PyTorch's features and their counterparts. Rows with a + are
/// compared with PyTorch in tests/parallel/ddp/ddp_parity_test.cpp.
///
/// | PyTorch                 | tandem                                             |
/// | ----------------------- | -------------------------------------------------- |
/// | module                  | + the first argument; it is not wrapped            |
/// | forward                 | + forward() of the module                          |
/// | process_group           | + `comm`; Communicator::split() makes smaller ones |
/// | broadcast_buffers       | + `buffers`: broadcast (default), off, or average; |
/// |                         | ranks start with rank 0's buffers (PyTorch 2: not  |
/// |                         | with off)                                          |
/// | bucket_cap_mb           | + `bucket_bytes`                                   |
/// | find_unused_parameters  | + always: gradients of unused parameters count as  |
/// |                         | zero, with one warning. A parameter that no rank   |
/// |                         | uses has a .grad of zeros (PyTorch: None), so      |
/// |                         | weight decay changes it; freeze it to prevent this |
/// | gradient_as_bucket_view | + always                                           |
/// | static_graph            | + not needed: results do not depend on it          |
/// | no_sync                 | + no_sync(): a scope around backward               |
/// | register_comm_hook      | + `bucket_hook`; `comm_hook` for fp16 and bf16;    |
/// |                         | `reduction` for the hook that does not divide      |
/// | several backwards       | + gradients accumulate. Each backward of a forward |
/// |                         | is reduced (PyTorch: only the first, silently)     |
/// | parameters_to_ignore    | + the other constructor, with lists without them   |
/// | state_dict              | + the module's names, without "module."            |
/// | create_graph            | values are reduced, without a graph (PyTorch:      |
/// |                         | warns, and fails for most modules)                 |
/// | join                    | join() at the end of a rank's batches. The rank    |
/// |                         | makes the steps of the others, so its parameters   |
/// |                         | stay equal (PyTorch: copied at the end)            |
/// | clip_grad_norm_ (FSDP)  | clip_grad_norm()                                   |
/// | fully_shard             | `shard` and pass()                                 |
/// | check_reduction         | no: deprecated                                     |
/// | device_ids,             | no: a rank has one device                          |
/// | output_device, dim      |                                                    |
class DistributedDataParallel {
 public:
  /// Wraps `module`, a torch::nn::Module or another type with named_parameters() and
  /// named_buffers(). Collective. Throws ConfigError if the ranks' models differ or
  /// have no trainable parameter.
  template <typename Module>
  DistributedDataParallel(
      Module& module, Communicator& comm,
      const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(
            named_tensors(module.named_parameters()),
            named_tensors(module.named_buffers()), comm, options,
            [&module] { return module_state(module); }) {}

  /// Wraps lists of parameters and buffers instead of a module. Added or replaced
  /// tensors are not detected. Collective.
  DistributedDataParallel(
      const std::vector<NamedTensor>& parameters,
      const std::vector<NamedTensor>& buffers, Communicator& comm,
      const DistributedDataParallelOptions& options = {})
      : DistributedDataParallel(parameters, buffers, comm, options, {}) {}
  ~DistributedDataParallel();

  /// While a NoSync object exists, backward() does not reduce gradients. They
  /// accumulate in .grad until the next reducing backward.
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

  /// Returns a scope without reduction:
  ///
  ///   {
  ///     const auto scope = ddp.no_sync();
  ///     loss_of(first).backward();
  ///   }
  ///   loss_of(second).backward();  // reduces both
  NoSync no_sync() {
    return NoSync(*this);
  }

  /// Broadcasts or averages buffers, according to
  /// DistributedDataParallelOptions::buffers. A reducing backward calls this function
  /// at its end. Collective.
  void sync_buffers();

  /// Returns the trainable parameters that this rank updates: the module's parameters,
  /// or with `shard` flat parts of them, with the parameters' names. Their .grad are
  /// views of the gradient arena. An optimizer over them must be a ShardedOptimizer.
  const std::vector<NamedTensor>& own_parameters() const;

  /// Sets all gradients to zero. With `shard`, call this function, or zero_grad() of
  /// the ShardedOptimizer, instead of the module's zero_grad().
  void zero_grad();

  /// Scales the gradients down if their 2-norm, over all parameters, exceeds
  /// `max_norm`, as torch.nn.utils.clip_grad_norm_() does. Returns the norm before. The
  /// norm has the same bits for each division into shares. Collective with `shard`.
  /// Throws ConfigError unless `max_norm` is above 0.
  double clip_grad_norm(double max_norm);

  /// Calls body(), which runs forward and backward of a batch:
  ///
  ///   ddp.pass([&] { loss_of(batch).backward(); });
  ///
  /// Needed only with Sharding::parameters, under which operators of the body find
  /// complete parameters. Collective then.
  void pass(const std::function<void()>& body);
  /// Calls body(), which runs only a forward. All ranks must make the same number of
  /// calls. Otherwise as pass().
  void evaluation_pass(const std::function<void()>& body);

  /// Makes all parameters complete on every rank, until the next pass or step.
  /// Collective. Needed only with Sharding::parameters, for example to save them.
  void gather_parameters();

  /// Takes part in the steps of the ranks that still have batches, until no rank has
  /// any: contributes zeros to their gradients, and calls `step`, which does what the
  /// loop does after backward. Call it when this rank's batches of an epoch have ended:
  ///
  ///   for (auto& batch : *loader) {
  ///     loss_of(batch).backward();
  ///     step();  // for instance clips, and calls optimizer.step() and zero_grad()
  ///   }
  ///   ddp.join(step);
  ///
  /// The mean is over all ranks, as in PyTorch. Collective. Buffers are those of the
  /// first rank that still has a batch, or the mean over all ranks. Throws ConfigError
  /// unless DistributedDataParallelOptions::join is true.
  void join(const std::function<void()>& step);

  /// Checks that all ranks have equal parameters, read different samples and trained
  /// the wrapped module, as backward() does regularly. Call it after the last step,
  /// which no backward checks. Collective. Throws Error that names the ranks.
  void check();

  /// Returns the arenas of parameters, gradients and buffers.
  ModelArenas& arenas();

  /// Returns the kind of sharding.
  Sharding shard() const;
  /// Returns the ranks that divide the values among them.
  Communicator& shard_group();
  /// Returns the index of this group among the groups that are replicas of each other.
  int shard_group_index() const;

  // For Checkpoint: the share of this rank.
  const OwnShare& own_share() const;
  // For ShardedOptimizer: registers the tensors that it updates. Throws ConfigError if
  // a tensor is not of own_parameters(), or is registered.
  void own(const std::vector<at::Tensor>& tensors);
  // For ShardedOptimizer: removes registered tensors.
  void disown(const std::vector<at::Tensor>& tensors);
  // For ShardedOptimizer: sends updated parameters to ranks that keep them.
  void gather_updated();
  // For ShardedOptimizer: returns whether `mine` is true on all ranks that have other
  // shares.
  bool holds_on_all_ranks(bool mine);

 private:
  // `list` returns the module's current parameters and buffers; empty: added or
  // replaced tensors are not detected.
  DistributedDataParallel(
      const std::vector<NamedTensor>& parameters,
      const std::vector<NamedTensor>& buffers, Communicator& comm,
      const DistributedDataParallelOptions& options,
      std::function<std::vector<NamedTensor>()> list);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem

#include "tandem/parallel/ddp/distributed_data_parallel.h"

#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/buffers.h"
#include "tandem/comm/exchange.h"
#include "tandem/core/arena.h"
#include "tandem/exec/gradient_hooks.h"
#include "tandem/parallel/ddp/module_watch.h"
#include "tandem/parallel/ddp/own_share.h"
#include "tandem/parallel/ddp/replica_guard.h"
#include "tandem/parallel/reduce/grad_reducer.h"
#include "tandem/parallel/reduce/replicas.h"
#include "tandem/parallel/update/arena_update.h"
#include "tandem/parallel/update/shard_groups.h"
#include "tandem/parallel/update/sharded_parameters.h"

namespace tandem {

namespace {

using Options = DistributedDataParallelOptions;

Options settled(Options options) {
  if (options.shard == Sharding::automatic) {
    options.shard = Sharding::none;
  }
  if (options.shard == Sharding::parameters) {
    // No two ranks have the same parameters.
    options.drift_check = DriftCheck::off;
  }
  return options;
}

ModelArenaOptions in_buffers_of(Communicator& comm, int64_t bucket_bytes) {
  ModelArenaOptions options;
  options.bucket_bytes = bucket_bytes;
  options.divisor = comm.size();
  options.allocate_gradients = buffers_of(comm);
  return options;
}

// Checks the options and `parameters` before arenas use the tensors. Returns
// `parameters`.
const std::vector<NamedTensor>& checked(
    const std::vector<NamedTensor>& parameters, const Options& options) {
  if (options.buffers == BufferSync::sync) {
    throw ConfigError(
        "[ddp] buffers is sync, expected broadcast, average or off; for statistics "
        "over all ranks use tandem::SyncBatchNorm");
  }
  if (options.bucket_hook && options.comm_hook != CommHook::none) {
    throw ConfigError(
        "[ddp] bucket_hook and comm_hook are both set, expected at most one; remove "
        "one");
  }
  if (options.bucket_hook && options.shard != Sharding::none) {
    throw ConfigError(
        std::string("[ddp] bucket_hook is set and shard is ") + name_of(options.shard) +
        ", but a bucket hook gives each rank all gradients; remove the hook, or set "
        "shard to none");
  }
  if (std::none_of(parameters.begin(), parameters.end(), [](const auto& entry) {
        return entry.tensor.requires_grad();
      })) {
    throw ConfigError(
        "[ddp] none of the " + std::to_string(parameters.size()) +
        " parameters is trainable, expected at least one; set requires_grad before "
        "DistributedDataParallel is made, or do not use it");
  }
  return parameters;
}

}  // namespace

struct DistributedDataParallel::State {
  State(
      const std::vector<NamedTensor>& parameters,
      const std::vector<NamedTensor>& buffers, Communicator& group,
      const Options& chosen, std::function<std::vector<NamedTensor>()> list)
      : comm(group),
        options(settled(chosen)),
        arenas(
            checked(parameters, options), buffers,
            in_buffers_of(group, options.bucket_bytes)),
        groups(
            options.shard == Sharding::none ? StrategyOptions::kAllRanks
                                            : options.shard_group,
            group),
        share(arenas, options.shard, groups.shard()),
        watch(arenas, std::move(list)),
        reducer(
            groups.shard(), arenas.gradients(), true,
            {options.comm_hook, 1.0 / group.size(), options.bucket_hook},
            options.shard == Sharding::none ? SumGoesTo::all_ranks : SumGoesTo::owners,
            groups.replicas()),
        guard(
            comm, arenas,
            {options.drift_check, options.check_samples, options.check_every}),
        hooks(arenas, [this](size_t slot) { written(slot); }) {
    comm.check_equal(
        "DistributedDataParallelOptions",
        std::string("shard ") + name_of(options.shard) + " in groups of " +
            std::to_string(options.shard_group) + ", join " +
            (options.join ? "true" : "false"));
  }

  // Gives all ranks rank 0's parameters and buffers. Collective.
  void start() {
    if (options.shard >= Sharding::gradients) {
      arenas.gradients().release_on_zero();
    }
    if (options.shard == Sharding::parameters) {
      check_alike(comm, arenas);
      parts = std::make_unique<ShardedParameters>(groups.shard(), arenas.parameters());
      parts->distribute(comm);
      broadcast_arena(comm, arenas.buffers());
      parts->watch_thread();
    } else {
      start_alike(comm, arenas);
    }
  }

  // A callback of autograd's current backward owns this object. If that backward
  // throws, the object is destroyed without a call of finish().
  struct Backward {
    explicit Backward(State& of) : state(of) {}
    ~Backward() {
      if (!finished) {
        state.abandon();
      }
    }
    Backward(const Backward&) = delete;
    Backward& operator=(const Backward&) = delete;

    void finish() {
      if (state.syncing) {
        state.reducer.warn_of_unused();
        state.finish();
      }
      state.running = false;
      finished = true;
      if (state.syncing) {
        state.guard.end_backward();
      }
    }

    State& state;
    bool finished = false;
  };

  // Called for each gradient of a backward. Only the first call in a backward has an
  // effect.
  void begin() {
    if (running) {
      return;
    }
    if (num_stranded > 0) {
      throw CommError(
          "backward", "the previous backward threw after " +
                          std::to_string(num_stranded) + " of " +
                          std::to_string(reducer.buckets().size()) +
                          " buckets had been sent, so the ranks' gradients differ; "
                          "restart the run");
    }
    watch.check();
    share.check_attached();
    guard.begin_backward();
    syncing = sync;
    if (syncing && parts == nullptr) {
      begin_reduction(comm.rank());
    }
    torch::autograd::Engine::get_default_engine().queue_callback(
        [backward = std::make_shared<Backward>(*this)] { backward->finish(); });
    running = true;
    if (syncing) {
      arenas.attach_gradients();
    }
  }

  void written(size_t slot) {
    begin();
    if (!syncing) {
      return;
    }
    // With create_graph, autograd replaces .grad instead of adding to it.
    const auto& place = arenas.gradients().layout().slots()[slot];
    if (!arenas.tensors()[slot].grad().is_alias_of(
            arenas.gradients().segment(place.segment))) {
      arenas.attach_gradients();
    }
    guard.add_gradient(slot, arenas.gradients().view(slot));
    reducer.gradient_ready(slot);
  }

  void finish() {
    reducer.finish();
    if (options.shard == Sharding::optimizer) {
      share.clear_other_gradients();
    }
    take_mean();
    tandem::sync_buffers(comm, arenas, options.buffers, first_with_batch);
  }

  void take_mean() {
    if (options.bucket_hook || options.reduction == Reduction::sum) {
      return;
    }
    for (const auto& range : share.ranges()) {
      arenas.gradients().slice(range).div_(comm.size());
    }
  }

  void abandon() {
    running = false;
    num_stranded = syncing && comm.size() > 1 ? reducer.num_launched() : 0;
  }

  // Starts a reduction, unless no rank has a batch. `mine` is this rank, or the number
  // of ranks if it has no batch.
  void begin_reduction(int mine) {
    if (options.join) {
      first_with_batch =
          static_cast<int>(reduce_count(mine, ReduceOp::min, "join", comm));
    }
    reducer.begin(nullptr);
  }

  void pass(ShardedParameters::Pass kind, const std::function<void()>& body) {
    if (parts == nullptr) {
      body();
      return;
    }
    const bool training = kind == ShardedParameters::Pass::training;
    if (training && options.join && !sync) {
      throw ConfigError(
          "[ddp] a pass runs under no_sync() with join and shard parameters, expected "
          "only reducing passes; set shard to gradients, or join to false");
    }
    const bool reduces = training && sync;
    if (reduces) {
      begin_reduction(comm.rank());
    }
    parts->pass(kind, reduces ? &reducer : nullptr, [&] {
      body();
      return StepSums();
    });
  }

  void join(const std::function<void()>& step) {
    while (begin_reduction(comm.size()), first_with_batch < comm.size()) {
      arenas.gradients().zero();
      arenas.attach_gradients();
      guard.begin_backward();
      if (parts != nullptr) {
        parts->pass_without_batch(ShardedParameters::Pass::training, &reducer);
      }
      finish();
      guard.end_backward();
      step();
    }
    first_with_batch = 0;
  }

  Communicator& comm;
  const Options options;
  ModelArenas arenas;
  ShardGroups groups;
  OwnShare share;
  ModuleWatch watch;
  GradReducer reducer;
  ReplicaGuard guard;
  // Null unless the parameters are sharded.
  std::unique_ptr<ShardedParameters> parts;
  // Tensors that a ShardedOptimizer updates.
  std::set<const at::TensorImpl*> owned;
  bool sync = true;
  // True while a backward runs that may reduce gradients.
  bool running = false;
  bool syncing = false;
  // Number of buckets that a backward had sent when it threw. Other ranks wait for the
  // remaining buckets.
  size_t num_stranded = 0;
  // The first rank that has a batch in the current step, whose buffers are broadcast.
  int first_with_batch = 0;
  GradientHooks hooks;
};

DistributedDataParallel::DistributedDataParallel(
    const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& buffers,
    Communicator& comm, const DistributedDataParallelOptions& options,
    std::function<std::vector<NamedTensor>()> list)
    : state_(std::make_unique<State>(
          parameters, buffers, comm, options, std::move(list))) {
  state_->start();
}

DistributedDataParallel::~DistributedDataParallel() = default;

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp)
    : ddp_(ddp), before_(std::exchange(ddp.state_->sync, false)) {}

DistributedDataParallel::NoSync::~NoSync() {
  ddp_.state_->sync = before_;
}

void DistributedDataParallel::sync_buffers() {
  tandem::sync_buffers(state_->comm, state_->arenas, state_->options.buffers);
}

const std::vector<NamedTensor>& DistributedDataParallel::own_parameters() const {
  return state_->share.tensors();
}

void DistributedDataParallel::own(const std::vector<at::Tensor>& tensors) {
  std::map<const at::TensorImpl*, std::string> names;
  for (const auto& [name, tensor] : own_parameters()) {
    names[tensor.unsafeGetTensorImpl()] = name;
  }
  for (const auto& tensor : tensors) {
    const auto* const impl = tensor.unsafeGetTensorImpl();
    if (names.count(impl) == 0) {
      throw ConfigError(
          "[ddp] a ShardedOptimizer has a tensor that is not in own_parameters(), "
          "expected only such tensors; pass them instead of the module's parameters");
    }
    if (state_->owned.count(impl) > 0) {
      throw ConfigError(
          "[ddp] two optimizers have the parameter '" + names[impl] +
          "', expected one; destroy the first, or give each its own parameters");
    }
  }
  for (const auto& tensor : tensors) {
    state_->owned.insert(tensor.unsafeGetTensorImpl());
  }
}

void DistributedDataParallel::disown(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    state_->owned.erase(tensor.unsafeGetTensorImpl());
  }
}

const OwnShare& DistributedDataParallel::own_share() const {
  return state_->share;
}

Communicator& DistributedDataParallel::shard_group() {
  return state_->groups.shard();
}

int DistributedDataParallel::shard_group_index() const {
  return state_->groups.index();
}

Sharding DistributedDataParallel::shard() const {
  return state_->options.shard;
}

void DistributedDataParallel::zero_grad() {
  state_->arenas.gradients().zero();
  state_->arenas.attach_gradients();
}

double DistributedDataParallel::clip_grad_norm(double max_norm) {
  if (!(max_norm > 0)) {
    throw ConfigError(
        "[ddp] max_norm is " + std::to_string(max_norm) +
        ", expected a number above 0; change clip_grad_norm(max_norm)");
  }
  const Arena& gradients = state_->arenas.gradients();
  const auto& own = state_->share.ranges();
  const auto squares = state_->options.shard == Sharding::none
                           ? squares_of(gradients, own)
                           : squares_of_parts(state_->groups.shard(), gradients, own);
  const auto norm = squares.sum().sqrt();
  const auto factor = clip_factor(norm, max_norm);
  for (const auto& range : own) {
    gradients.slice(range).mul_(factor);
  }
  return norm.item<double>();
}

void DistributedDataParallel::pass(const std::function<void()>& body) {
  state_->pass(ShardedParameters::Pass::training, body);
}

void DistributedDataParallel::evaluation_pass(const std::function<void()>& body) {
  state_->pass(ShardedParameters::Pass::evaluation, body);
}

void DistributedDataParallel::gather_parameters() {
  if (state_->parts) {
    state_->parts->gather();
  }
}

void DistributedDataParallel::gather_updated() {
  if (state_->parts) {
    state_->parts->release();
  } else if (state_->options.shard != Sharding::none) {
    gather_parts(state_->groups.shard(), state_->arenas.parameters());
  }
}

bool DistributedDataParallel::holds_on_all_ranks(bool mine) {
  return state_->options.shard == Sharding::none
             ? mine
             : reduce_count(
                   mine ? 1 : 0, ReduceOp::min, "decision", state_->groups.shard()) ==
                   1;
}

void DistributedDataParallel::join(const std::function<void()>& step) {
  if (!state_->options.join) {
    throw ConfigError(
        "[ddp] join() was called, but DistributedDataParallelOptions::join is false; "
        "set it to true on all ranks");
  }
  state_->join(step);
}

void DistributedDataParallel::check() {
  state_->guard.check();
}

ModelArenas& DistributedDataParallel::arenas() {
  return state_->arenas;
}

}  // namespace tandem

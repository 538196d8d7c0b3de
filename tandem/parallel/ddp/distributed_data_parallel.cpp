#include "tandem/parallel/ddp/distributed_data_parallel.h"

#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/buffers.h"
#include "tandem/core/arena.h"
#include "tandem/exec/gradient_hooks.h"
#include "tandem/parallel/ddp/replica_guard.h"
#include "tandem/parallel/reduce/grad_reducer.h"
#include "tandem/parallel/reduce/replicas.h"

namespace tandem {

// Checks that a module still has the tensors with which its arenas were constructed.
//
// If a parameter is converted to another dtype, GradientHooks for the parameter are
// lost, because they belong to its autograd node. Hooks on the tensor remain, so
// ModuleWatch uses hooks on tensors. A backward that reaches a moved or converted
// parameter throws the error of check().
class ModuleWatch {
 public:
  // Adds hooks to the parameters in `arenas`, which must outlive this object. `list`
  // returns the module's current parameters and buffers, in order of registration. If
  // `list` is empty, check() does not detect added or replaced tensors.
  ModuleWatch(ModelArenas& arenas, std::function<std::vector<NamedTensor>()> list);
  ~ModuleWatch();
  ModuleWatch(const ModuleWatch&) = delete;
  ModuleWatch& operator=(const ModuleWatch&) = delete;

  // Throws ConfigError with the name of the first parameter or buffer that was moved,
  // replaced, added or removed, or whose requires_grad changed.
  void check() const;

 private:
  ModelArenas& arenas_;
  std::function<std::vector<NamedTensor>()> list_;
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
};

namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw ConfigError(
      "[ddp] '" + name + "' " + what +
      " after DistributedDataParallel was made; change the module first, then make "
      "DistributedDataParallel and the optimizer");
}

bool is_same(const NamedTensor& a, const NamedTensor& b) {
  return a.name == b.name && a.tensor.is_same(b.tensor);
}

void check_same(
    const std::vector<NamedTensor>& made_of, const std::vector<NamedTensor>& now) {
  if (std::equal(made_of.begin(), made_of.end(), now.begin(), now.end(), is_same)) {
    return;
  }
  const auto find = [](const std::vector<NamedTensor>& in, const std::string& name) {
    return std::find_if(
        in.begin(), in.end(), [&](const auto& entry) { return entry.name == name; });
  };
  for (const auto& entry : now) {
    if (find(made_of, entry.name) == made_of.end()) {
      refuse(entry.name, "was added");
    }
  }
  for (const auto& entry : made_of) {
    const auto found = find(now, entry.name);
    if (found == now.end()) {
      refuse(entry.name, "was removed");
    }
    if (!found->tensor.is_same(entry.tensor)) {
      refuse(entry.name, "was replaced");
    }
  }
}

}  // namespace

ModuleWatch::ModuleWatch(
    ModelArenas& arenas, std::function<std::vector<NamedTensor>()> list)
    : arenas_(arenas), list_(std::move(list)) {
  for (size_t slot = 0; slot < arenas.tensors().size(); ++slot) {
    const auto& tensor = arenas.tensors()[slot];
    if (!tensor.requires_grad()) {
      continue;
    }
    const auto hook = [this, slot, made_at = tensor.data_ptr()](const at::Tensor&) {
      if (arenas_.tensors()[slot].data_ptr() != made_at) {
        check();
      }
    };
    hooks_.emplace_back(tensor, tensor.register_hook(hook));
  }
}

ModuleWatch::~ModuleWatch() {
  for (const auto& [tensor, position] : hooks_) {
    tensor.remove_hook(position);
  }
}

void ModuleWatch::check() const {
  const auto made_of = arenas_.state();
  if (list_) {
    check_same(made_of, list_());
  }
  arenas_.check_attached();
  const auto& layout = arenas_.parameters().layout();
  for (size_t i = 0; i < layout.slots().size(); ++i) {
    const auto& slot = layout.slots()[i];
    const auto& segment = layout.segments()[static_cast<size_t>(slot.segment)];
    if (arenas_.tensors()[i].requires_grad() != segment.trainable) {
      refuse(slot.name, segment.trainable ? "was frozen" : "became trainable");
    }
  }
  // Buffers come last in both lists.
  const auto& buffers = arenas_.buffers().layout().slots();
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto& entry = made_of[made_of.size() - buffers.size() + i];
    if (!entry.tensor.is_alias_of(arenas_.buffers().segment(buffers[i].segment))) {
      refuse(entry.name, "was moved");
    }
  }
}

namespace {

ModelArenaOptions in_buffers_of(Communicator& comm, int64_t bucket_bytes) {
  ModelArenaOptions options;
  options.bucket_bytes = bucket_bytes;
  options.allocate_gradients = buffers_of(comm);
  return options;
}

// Checks the options and `parameters` before arenas use the tensors. Returns
// `parameters`.
const std::vector<NamedTensor>& checked(
    const std::vector<NamedTensor>& parameters,
    const DistributedDataParallelOptions& options) {
  if (options.buffers == BufferSync::sync) {
    throw ConfigError(
        "[ddp] buffers is sync, expected broadcast, average or off; for statistics "
        "over all ranks use a module that computes them");
  }
  if (options.bucket_hook && options.comm_hook != CommHook::none) {
    throw ConfigError(
        "[ddp] bucket_hook and comm_hook are both set, expected at most one; remove "
        "one");
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
      const DistributedDataParallelOptions& chosen,
      std::function<std::vector<NamedTensor>()> list)
      : comm(group),
        options(chosen),
        arenas(
            checked(parameters, chosen), buffers,
            in_buffers_of(group, chosen.bucket_bytes)),
        watch(arenas, std::move(list)),
        reducer(
            comm, arenas.gradients(), true,
            {chosen.comm_hook, 1.0 / group.size(), chosen.bucket_hook}),
        guard(
            comm, arenas,
            {chosen.drift_check, chosen.check_samples, chosen.check_every}),
        hooks(arenas, [this](size_t slot) { written(slot); }) {}

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
      state.finish();
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
    guard.begin_backward();
    syncing = sync;
    if (syncing) {
      reducer.begin(nullptr);
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
    if (syncing) {
      reducer.warn_of_unused();
      reducer.finish();
      take_mean();
      tandem::sync_buffers(comm, arenas, options.buffers);
    }
    running = false;
  }

  void take_mean() {
    if (options.bucket_hook || options.reduction == Reduction::sum) {
      return;
    }
    for (const auto& range : arenas.gradients().layout().trainable_ranges()) {
      arenas.gradients().slice(range).div_(comm.size());
    }
  }

  void abandon() {
    running = false;
    num_stranded = syncing && comm.size() > 1 ? reducer.num_launched() : 0;
  }

  Communicator& comm;
  const DistributedDataParallelOptions options;
  ModelArenas arenas;
  ModuleWatch watch;
  GradReducer reducer;
  ReplicaGuard guard;
  bool sync = true;
  // True while a backward runs that may reduce gradients.
  bool running = false;
  bool syncing = false;
  // Number of buckets that a backward had sent when it threw. Other ranks wait for the
  // remaining buckets.
  size_t num_stranded = 0;
  GradientHooks hooks;
};

DistributedDataParallel::DistributedDataParallel(
    const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& buffers,
    Communicator& comm, const DistributedDataParallelOptions& options,
    std::function<std::vector<NamedTensor>()> list)
    : state_(std::make_unique<State>(
          parameters, buffers, comm, options, std::move(list))) {
  start_alike(comm, state_->arenas);
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

void DistributedDataParallel::check() {
  state_->guard.check();
}

ModelArenas& DistributedDataParallel::arenas() {
  return state_->arenas;
}

}  // namespace tandem

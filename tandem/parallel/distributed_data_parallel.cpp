#include "tandem/parallel/distributed_data_parallel.h"

#include <torch/csrc/autograd/engine.h>

#include "tandem/comm/buffers.h"
#include "tandem/exec/gradient_hooks.h"
#include "tandem/parallel/grad_reducer.h"
#include "tandem/parallel/replicas.h"

namespace tandem {

namespace {

ModelArenaOptions in_buffers_of(Communicator& comm) {
  ModelArenaOptions options;
  options.allocate_gradients = buffers_of(comm);
  return options;
}

}  // namespace

struct DistributedDataParallel::State {
  State(
      const std::vector<NamedTensor>& parameters,
      const std::vector<NamedTensor>& buffers, Communicator& group,
      const DistributedDataParallelOptions& options)
      : comm(group),
        arenas(parameters, buffers, in_buffers_of(group)),
        reducer(
            comm, arenas.gradients(),
            plan_buckets(
                arenas.gradients().layout(), SyncMode::overlap, options.bucket_bytes),
            true, {options.comm_hook, 1.0 / group.size()}),
        hooks(arenas, [this](size_t slot) { written(slot); }) {}

  void written(size_t slot) {
    if (!sync) {
      return;
    }
    if (!running) {
      running = true;
      arenas.attach_gradients();
      reducer.begin(nullptr);
      torch::autograd::Engine::get_default_engine().queue_callback(
          [this] { finish(); });
    }
    reducer.gradient_ready(slot);
  }

  void finish() {
    running = false;
    reducer.finish();
    for (const auto& range : arenas.gradients().layout().trainable_ranges()) {
      arenas.gradients().slice(range).div_(comm.size());
    }
  }

  Communicator& comm;
  ModelArenas arenas;
  GradReducer reducer;
  bool sync = true;
  bool running = false;
  GradientHooks hooks;
};

DistributedDataParallel::DistributedDataParallel(
    const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& buffers,
    Communicator& comm, const DistributedDataParallelOptions& options)
    : state_(std::make_unique<State>(parameters, buffers, comm, options)) {
  start_alike(comm, state_->arenas, state_->reducer.buckets());
}

DistributedDataParallel::~DistributedDataParallel() = default;

void DistributedDataParallel::set_sync(bool sync) {
  state_->sync = sync;
}

ModelArenas& DistributedDataParallel::arenas() {
  return state_->arenas;
}

}  // namespace tandem

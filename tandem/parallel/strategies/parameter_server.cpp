#include "tandem/parallel/strategies/parameter_server.h"

#include "tandem/base/error.h"
#include "tandem/parallel/reduce/replicas.h"
#include "tandem/parallel/update/arena_update.h"

namespace tandem {

namespace {

void check_options(const StrategyOptions& options, const Communicator& comm) {
  if (comm.size() < 2) {
    throw ConfigError(
        "[parallel] strategy parameter_server has 1 rank, expected a server and at "
        "least one worker; use --nproc 2 or more");
  }
  if (!has_rpc(comm)) {
    throw ConfigError(
        "[parallel] strategy parameter_server needs RPC, which --backend " +
        comm.backend() + " does not have; use --backend gloo or --rank-type thread");
  }
  if (options.buffers != BufferSync::broadcast &&
      options.buffers != BufferSync::average) {
    throw ConfigError(
        std::string("[parallel] buffers is ") + name_of(options.buffers) +
        ", but the server of strategy parameter_server gets its buffers from the "
        "workers; use --buffers broadcast (the first worker's) or average");
  }
}

}  // namespace

ParameterServerRank::ParameterServerRank(
    const StrategyOptions& options, const StrategyParts& parts)
    : Strategy(options, parts),
      trainable_(parts.arenas.parameters().layout().trainable_ranges()) {}

void ParameterServerRank::start() {
  start_alike(parts_.comm, parts_.arenas);
  if (!rpc_) {
    rpc_ = make_rpc(parts_.comm);
  }
  // start_alike() also changed frozen parameters.
  notify_executor(parts_);
}

// Waits at a barrier until all workers have received their replies. The RPC connections
// can then close.
void ParameterServerRank::end_epoch(bool last) {
  if (last) {
    parts_.comm.barrier("last answer");
    rpc_.reset();
  }
}

DataShard ParameterServerRank::data_shard() const {
  return {num_workers(), parts_.comm.rank() - kFirstWorker};
}

Consistency ParameterServerRank::consistency() const {
  return is_asynchronous() ? Consistency::asynchronous : Consistency::replicated;
}

void ParameterServerRank::before_evaluation() {
  if (is_asynchronous()) {
    for (const auto& range : trainable_) {
      auto parameters = parts_.arenas.parameters().slice(range);
      parts_.comm.broadcast(parameters, kServer, "newest parameters")->wait();
      parts_.executor.parameters_changed(range);
    }
  }
  for (const auto& range : parts_.arenas.buffers().layout().ranges()) {
    take_workers_buffers(parts_.arenas.buffers().slice(range));
  }
}

TrainingState ParameterServerRank::collect_state() {
  before_evaluation();
  return local_state(parts_.arenas, parts_.optimizer);
}

int64_t ParameterServerRank::num_workers() const {
  return parts_.comm.size() - 1;
}

Rpc& ParameterServerRank::rpc() const {
  TANDEM_CHECK(rpc_ != nullptr, "a step before start() or after the last epoch");
  return *rpc_;
}

bool ParameterServerRank::is_asynchronous() const {
  return options_.server_updates == ServerUpdates::asynchronous;
}

// Averages or broadcasts the workers' buffers. The server has no statistics of its own,
// so it contributes zeros to the sums. Counters are copied from the first worker.
void ParameterServerRank::take_workers_buffers(at::Tensor buffers) {
  if (options_.buffers == BufferSync::average &&
      at::isFloatingType(buffers.scalar_type())) {
    if (parts_.comm.rank() == kServer) {
      buffers.zero_();
    }
    parts_.comm.all_reduce(buffers, ReduceOp::sum, "buffers")->wait();
    buffers.div_(num_workers());
  } else {
    parts_.comm.broadcast(buffers, kFirstWorker, "buffers")->wait();
  }
}

namespace {

// The strategy of every rank except kServer.
class Worker : public ParameterServerRank {
 public:
  using ParameterServerRank::ParameterServerRank;

  StepSums train_step(
      const std::vector<Batch>& micro_batches, const StepContext& context) override {
    // An asynchronous server makes a step for each worker's gradients.
    const StepContext weighted = with_loss_weight(
        parts_, micro_batches,
        is_asynchronous() ? LossMean::own_samples : LossMean::global_batch, context);
    const auto sums = add_up_gradients(parts_, micro_batches, weighted);
    RpcMessage push{kPush, {sums.tensor()}};
    if (!micro_batches.empty()) {
      for (const auto& range : trainable_) {
        push.tensors.push_back(parts_.arenas.gradients().slice(range));
      }
    }
    const RpcMessage answer = exchange(std::move(push), context.trace);
    const TraceSpan span(context.trace, "update", "pull");
    pull(answer);
    return sums;
  }

  void leave_steps() override {
    rpc().call(kServer, {kLeave, {}});
  }

 private:
  RpcMessage exchange(RpcMessage push, Trace* trace) {
    const TraceSpan span(trace, "wait", "wait push and pull");
    std::shared_ptr<Trace::Operation> operation;
    if (trace != nullptr) {
      int64_t bytes = 0;
      for (const auto& tensor : push.tensors) {
        bytes += static_cast<int64_t>(tensor.nbytes());
      }
      operation = trace->start_operation("rpc", "push and pull", bytes);
    }
    auto answer = rpc().call(kServer, std::move(push));
    if (operation) {
      operation->end();
    }
    return answer;
  }

  void pull(const RpcMessage& answer) {
    TANDEM_CHECK(answer.tensors.size() == trainable_.size(), "parameters are missing");
    for (size_t i = 0; i < trainable_.size(); ++i) {
      parts_.arenas.parameters().slice(trainable_[i]).copy_(answer.tensors[i]);
      parts_.executor.parameters_changed(trainable_[i]);
    }
  }
};

}  // namespace

bool updates_elsewhere(const StrategyOptions& options, const Communicator& comm) {
  return has_trait(options.kind, kHasServer) && comm.rank() != kServer;
}

std::unique_ptr<Strategy> make_strategy(
    KindTag<StrategyKind::parameter_server>, const StrategyOptions& options,
    const StrategyParts& parts) {
  check_options(options, parts.comm);
  if (updates_elsewhere(options, parts.comm)) {
    return std::make_unique<Worker>(options, parts);
  }
  return make_server_rank(options, parts);
}

}  // namespace tandem

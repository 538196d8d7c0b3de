#include "tandem/base/error.h"
#include "tandem/parallel/strategies/parameter_server.h"
#include "tandem/parallel/update/arena_update.h"

namespace tandem {

namespace {

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

std::unique_ptr<Strategy> make_worker_rank(
    const StrategyOptions& options, const StrategyParts& parts) {
  return std::make_unique<Worker>(options, parts);
}

}  // namespace tandem

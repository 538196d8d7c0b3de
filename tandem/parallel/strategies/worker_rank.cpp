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
    StepContext weighted = context;
    weighted.loss_weight = weight_of(micro_batches);
    const auto sums = add_up_gradients(parts_, micro_batches, weighted);
    RpcMessage push{kPush, {sums.tensor()}};
    if (!micro_batches.empty()) {
      for (const auto& range : trainable_) {
        push.tensors.push_back(parts_.arenas.gradients().slice(range));
      }
    }
    pull(exchange(std::move(push), context.trace));
    return sums;
  }

  void leave_steps() override {
    rpc().call(kServer, {kLeave, {}});
  }

 private:
  // Returns the loss weight for the samples of all workers. With an asynchronous
  // server, returns the loss weight for this worker's samples.
  double weight_of(const std::vector<Batch>& micro_batches) const {
    if (micro_batches.empty()) {
      return 1;
    }
    const auto& first = micro_batches.front();
    return loss_weight(
        parts_.loss,
        is_asynchronous() ? count_in_loss(micro_batches) : first.global_count,
        first.targets);
  }

  RpcMessage exchange(RpcMessage push, Trace* trace) {
    Trace::Event event{"push and pull", "comm"};
    for (const auto& tensor : push.tensors) {
      event.bytes += static_cast<int64_t>(tensor.nbytes());
    }
    event.at_us = trace != nullptr ? trace->now_us() : 0;
    auto answer = rpc().call(kServer, std::move(push));
    if (trace != nullptr) {
      event.duration_us = trace->now_us() - event.at_us;
      trace->add(event);
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

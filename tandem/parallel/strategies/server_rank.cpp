#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/parallel/strategies/parameter_server.h"
#include "tandem/parallel/update/arena_update.h"

namespace tandem {

namespace {

// The strategy of the server. Requests wait in a queue until train_step() handles them,
// so only one thread uses the arenas.
class Server : public ParameterServerRank {
 public:
  Server(const StrategyOptions& options, const StrategyParts& parts)
      : ParameterServerRank(options, parts),
        workers_(static_cast<size_t>(num_workers())) {}

  StepSums train_step(const std::vector<Batch>&, const StepContext& context) override {
    return is_asynchronous() ? serve_each(context) : serve_together(context);
  }

  // The trainer calls it only for an asynchronous server.
  void leave_steps() override {
    while (num_left_ < num_workers()) {
      if (auto* worker = next_push(nullptr)) {
        take_push(*worker, context_);
      }
    }
  }

  void end_epoch(bool last) override {
    if (last && is_asynchronous()) {
      log_info(describe_staleness());
    }
    ParameterServerRank::end_epoch(last);
  }

 private:
  struct PerWorker {
    // Number of steps that this worker has pushed.
    int64_t clock = 0;
    // Number of steps by which this worker was ahead of the slowest worker when it
    // received its parameters.
    int64_t staleness = 0;
    // The worker's push, while the worker waits for the reply.
    RpcRequest push;
    bool waits = false;
  };

  RpcRequest next_request(Trace* trace) {
    const TraceSpan span(trace, "wait", "wait for a push");
    return rpc().next();
  }

  // Waits for the next request. Returns the worker that pushed and now waits for a
  // reply, or null if a worker left.
  PerWorker* next_push(Trace* trace) {
    RpcRequest push = next_request(trace);
    if (push.message.header == kLeave) {
      push.reply({});
      ++num_left_;
      answer_workers_within_staleness();
      return nullptr;
    }
    const size_t size = push.message.tensors.size();
    TANDEM_CHECK(
        push.message.header == kPush && push.from >= kFirstWorker &&
            push.from < parts_.comm.size() &&
            (size == 1 || size == 1 + trainable_.size()),
        "an unexpected request");
    auto& worker = workers_[static_cast<size_t>(push.from - kFirstWorker)];
    TANDEM_CHECK(!worker.waits, "a worker pushed twice");
    worker.push = std::move(push);
    worker.waits = true;
    return &worker;
  }

  void answer(PerWorker& worker) {
    RpcMessage parameters;
    for (const auto& range : trainable_) {
      parameters.tensors.push_back(parts_.arenas.parameters().slice(range));
    }
    worker.push.reply(std::move(parameters));
    worker.push = {};
    worker.waits = false;
  }

  // Makes one update with the gradients of all workers. Returns no sums, because
  // workers report their own sums.
  StepSums serve_together(const StepContext& context) {
    for (int64_t i = 0; i < num_workers(); ++i) {
      next_push(context.trace);
    }
    const TraceSpan span(context.trace, "update", "update");
    add_up_gradients();
    update(context, context.step + 1);
    for (auto& worker : workers_) {
      answer(worker);
    }
    return {};
  }

  // Sums in rank order, like an all-reduce of thread ranks, so the bits are the same.
  void add_up_gradients() {
    bool first = true;
    for (const auto& worker : workers_) {
      if (has_gradients(worker)) {
        take_gradients(worker, first);
        first = false;
      }
    }
    if (first) {
      parts_.arenas.gradients().zero();
    }
  }

  static bool has_gradients(const PerWorker& worker) {
    return worker.push.message.tensors.size() > 1;
  }

  void take_gradients(const PerWorker& worker, bool replace) {
    for (size_t i = 0; i < trainable_.size(); ++i) {
      auto sum = parts_.arenas.gradients().slice(trainable_[i]);
      const auto gradient = worker.push.message.tensors[i + 1].to(sum.device());
      replace ? sum.copy_(gradient) : sum.add_(gradient);
    }
  }

  // Handles as many pushes as there are workers, from any workers, and counts these
  // pushes as one step. Returns the sums of all these pushes.
  StepSums serve_each(const StepContext& context) {
    if (steps_ == 0) {
      updates_before_ = context.step * num_workers();
    }
    ++steps_;
    context_ = context;
    StepSums sums;
    while (pushes_ < steps_ * num_workers() && num_left_ < num_workers()) {
      if (auto* worker = next_push(context.trace)) {
        sums += take_push(*worker, context);
      }
    }
    return sums;
  }

  StepSums take_push(PerWorker& worker, const StepContext& context) {
    StepSums sums;
    if (has_gradients(worker)) {
      const TraceSpan span(
          context.trace, "update", "update of ", describe_push(worker, context.trace));
      sums += StepSums(worker.push.message.tensors[0]);
      take_gradients(worker, true);
      update(context, updates_before_ + ++updates_);
      ++updates_by_staleness_[worker.staleness];
    }
    ++pushes_;
    ++worker.clock;
    answer_workers_within_staleness();
    return sums;
  }

  // Stale synchronous parallel (Ho et al., "More Effective Distributed ML via a Stale
  // Synchronous Parallel Parameter Server", 2013): no worker is more than max_staleness
  // steps ahead of the slowest worker.
  void answer_workers_within_staleness() {
    int64_t slowest = workers_.front().clock;
    for (const auto& worker : workers_) {
      slowest = std::min(slowest, worker.clock);
    }
    for (auto& worker : workers_) {
      if (worker.waits &&
          (num_left_ > 0 || worker.clock - slowest <= options_.max_staleness)) {
        worker.staleness = worker.clock - slowest;
        answer(worker);
      }
    }
  }

  static std::string describe_push(const PerWorker& worker, const Trace* trace) {
    return trace == nullptr
               ? ""
               : fmt::format(
                     "rank {}, staleness {}", worker.push.from, worker.staleness);
  }

  // Returns "staleness_updates", the numbers of updates with staleness 0, 1, 2, ...
  std::map<std::string, std::vector<double>> measurements() override {
    if (updates_by_staleness_.empty()) {
      return {};
    }
    std::vector<double> counts(
        static_cast<size_t>(updates_by_staleness_.rbegin()->first) + 1);
    for (const auto& [staleness, updates] : updates_by_staleness_) {
      counts[static_cast<size_t>(staleness)] = static_cast<double>(updates);
    }
    return {{"staleness_updates", counts}};
  }

  std::string describe_staleness() const {
    std::vector<std::string> counts;
    for (const auto& [staleness, updates] : updates_by_staleness_) {
      counts.push_back(fmt::format("{}: {}", staleness, updates));
    }
    return fmt::format(
        "[parallel] staleness of the server's updates: at most {} of {} steps allowed "
        "(number of updates by staleness: {})",
        updates_by_staleness_.empty() ? 0 : updates_by_staleness_.rbegin()->first,
        options_.max_staleness, join(counts));
  }

  void update(const StepContext& context, int64_t number) {
    StepScalars step{context.lr, 1, number};
    clip(options_, parts_.arenas, step, [this] {
      return own_gradient_norm(parts_.arenas);
    });
    update_all(parts_, step);
  }

  std::vector<PerWorker> workers_;
  // Context of the last step.
  StepContext context_;
  // Number of steps in this process.
  int64_t steps_ = 0;
  // Numbers of messages from workers, of messages that had gradients, and of updates
  // before this process started.
  int64_t pushes_ = 0;
  int64_t updates_ = 0;
  int64_t updates_before_ = 0;
  std::map<int64_t, int64_t> updates_by_staleness_;
  // Number of workers that make no more steps. Other workers do not wait for them.
  int64_t num_left_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_server_rank(
    const StrategyOptions& options, const StrategyParts& parts) {
  return std::make_unique<Server>(options, parts);
}

}  // namespace tandem

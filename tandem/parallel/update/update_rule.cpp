#include "tandem/parallel/update/update_rule.h"

#include "tandem/comm/exchange.h"
#include "tandem/optim/grad_scaler.h"
#include "tandem/parallel/reduce/replicas.h"
#include "tandem/parallel/update/arena_update.h"

namespace tandem {

UpdateRule::UpdateRule(
    Sharding kind, Communicator& replicas, const StrategyParts& parts)
    : replicas_(replicas),
      parts_(parts),
      sharded_(kind > Sharding::none),
      sends_parameters_(sharded_ && kind != Sharding::parameters),
      own_(
          sharded_ ? parts.arenas.parameters().layout().parts(
                         replicas.rank(), replicas.size())
                   : parts.arenas.parameters().layout().trainable_ranges()) {}

void UpdateRule::start() {
  for (Arena* arena : parts_.optimizer.state()) {
    const auto& layout = arena->layout();
    for (const auto& range : layout.ranges()) {
      const auto& segment = layout.segments()[static_cast<size_t>(range.segment)];
      // Every rank updates, for example, the state of a GradScaler.
      const bool whole = !sharded_ || !segment.trainable;
      if (whole && arena->holds(range.segment)) {
        replicas_.broadcast(arena->slice(range), 0, arena->name())->wait();
      }
    }
    for (const auto& bucket : layout.buckets()) {
      if (sharded_) {
        const auto mine = arena->slice(bucket.part(replicas_.rank(), replicas_.size()));
        const auto whole =
            replicas_.rank() == 0 ? arena->slice(bucket.range) : at::Tensor();
        replicas_.scatter(mine, whole, 0, arena->name())->wait();
      }
    }
  }
}

at::Tensor UpdateRule::gradient_squares() {
  const Arena& gradients = parts_.arenas.gradients();
  return (sharded_ ? squares_of_parts(replicas_, gradients, own_)
                   : squares_of(gradients, own_))
      .sum();
}

void UpdateRule::unscale(StepScalars& step) {
  GradScaler* const scaler = parts_.optimizer.scaler();
  if (scaler == nullptr) {
    return;
  }
  bool finite = scaler->unscale(parts_.arenas.gradients(), own_);
  if (sharded_) {
    finite = reduce_count(finite ? 1 : 0, ReduceOp::min, "overflow", replicas_) == 1;
  }
  scaler->end_step(finite, step);
}

void UpdateRule::update(const StepScalars& step) {
  Arena& parameters = parts_.arenas.parameters();
  std::vector<WorkPtr> sent;
  for (size_t i = 0; i < own_.size(); ++i) {
    parts_.optimizer.update(own_[i], step);
    if (sends_parameters_) {
      sent.push_back(replicas_.all_gather(
          parameters.slice(buckets()[i].range), parameters.slice(own_[i]),
          parameters.name()));
    }
  }
  for (const auto& work : sent) {
    work->wait();
  }
  for (const auto& range : parameters.layout().trainable_ranges()) {
    parts_.executor.parameters_changed(range);
  }
}

void UpdateRule::collect_state() {
  if (!sharded_) {
    return;
  }
  for (const Arena* arena : parts_.optimizer.state()) {
    gather_parts(replicas_, *arena);
  }
}

}  // namespace tandem

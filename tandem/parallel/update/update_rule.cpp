#include "tandem/parallel/update/update_rule.h"

#include <string>

#include "tandem/base/error.h"

namespace tandem {

UpdateRule::UpdateRule(
    OptimizerState kind, Communicator& replicas, const StrategyParts& parts)
    : replicas_(replicas),
      parts_(parts),
      sharded_(kind == OptimizerState::sharded),
      trainable_(parts.arenas.parameters().layout().trainable_ranges()) {
  for (const auto& range : trainable_) {
    own_.push_back(sharded_ ? share_of(range) : range);
  }
}

void UpdateRule::start() {
  for (Arena* arena : parts_.optimizer.state()) {
    for (const auto& range : arena->layout().ranges()) {
      const auto& segment =
          arena->layout().segments()[static_cast<size_t>(range.segment)];
      if (sharded_ && segment.trainable) {
        const auto mine = arena->slice(share_of(range));
        replicas_.scatter(mine, whole_of(*arena, range), 0, arena->name())->wait();
      } else if (arena->holds(range.segment)) {
        // Every rank updates, for example, the state of a GradScaler.
        replicas_.broadcast(arena->slice(range), 0, arena->name())->wait();
      }
    }
  }
}

void UpdateRule::update(const StepScalars& step) {
  for (const auto& range : own_) {
    parts_.optimizer.update(range, step);
  }
  Arena& parameters = parts_.arenas.parameters();
  for (size_t i = 0; sharded_ && i < own_.size(); ++i) {
    replicas_
        .all_gather(
            parameters.slice(trainable_[i]), parameters.slice(own_[i]),
            parameters.name())
        ->wait();
  }
  for (const auto& range : trainable_) {
    parts_.executor.parameters_changed(range);
  }
}

void UpdateRule::collect_state() {
  if (!sharded_) {
    return;
  }
  for (const Arena* arena : parts_.optimizer.state()) {
    for (const auto& range : arena->layout().trainable_ranges()) {
      const auto mine = arena->slice(share_of(range));
      replicas_.gather(whole_of(*arena, range), mine, 0, arena->name())->wait();
    }
  }
}

// Returns this rank's equal share of a segment.
ArenaRange UpdateRule::share_of(const ArenaRange& segment) const {
  if (segment.begin != 0 || segment.end % replicas_.size() != 0) {
    throw ConfigError(
        "[parallel] a segment has " + std::to_string(segment.end) +
        " elements, expected a multiple of the " + std::to_string(replicas_.size()) +
        " ranks with sharded optimizer state; set ModelArenaOptions::divisor");
  }
  const int64_t share = segment.end / replicas_.size();
  return {segment.segment, replicas_.rank() * share, (replicas_.rank() + 1) * share};
}

// Returns the whole segment at the first replica, otherwise an undefined tensor.
at::Tensor UpdateRule::whole_of(const Arena& arena, const ArenaRange& range) const {
  return replicas_.rank() == 0 ? arena.slice(range) : at::Tensor();
}

}  // namespace tandem

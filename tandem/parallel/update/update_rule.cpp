#include "tandem/parallel/update/update_rule.h"

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/parallel/update/arena_update.h"

namespace tandem {

namespace {

class ReplicatedUpdate : public UpdateRule {
 public:
  ReplicatedUpdate(Communicator& replicas, const StrategyParts& parts)
      : replicas_(replicas), parts_(parts) {}

  void start() override {
    broadcast_state(replicas_, parts_.optimizer);
  }

  void update(const StepScalars& step) override {
    update_all(parts_, step);
  }

  void collect_state() override {}

 private:
  Communicator& replicas_;
  StrategyParts parts_;
};

ArenaRange share_of(const ArenaRange& segment, const Communicator& comm) {
  if (segment.begin != 0 || segment.end % comm.size() != 0) {
    throw ConfigError(
        "[parallel] a segment has " + std::to_string(segment.end) +
        " elements, expected a multiple of the " + std::to_string(comm.size()) +
        " ranks with sharded optimizer state; set ModelArenaOptions::divisor");
  }
  const int64_t share = segment.end / comm.size();
  return {segment.segment, comm.rank() * share, (comm.rank() + 1) * share};
}

class ShardedUpdate : public UpdateRule {
 public:
  ShardedUpdate(Communicator& replicas, const StrategyParts& parts)
      : replicas_(replicas),
        parts_(parts),
        trainable_(parts.arenas.parameters().layout().trainable_ranges()) {
    for (const auto& range : trainable_) {
      own_.push_back(share_of(range, replicas));
    }
  }

  void start() override {
    for (Arena* arena : parts_.optimizer.state()) {
      scatter(*arena);
    }
  }

  void update(const StepScalars& step) override {
    for (const auto& range : own_) {
      parts_.optimizer.update(range, step);
    }
    Arena& parameters = parts_.arenas.parameters();
    for (size_t i = 0; i < own_.size(); ++i) {
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

  void collect_state() override {
    for (Arena* arena : parts_.optimizer.state()) {
      for (const auto& range : arena->layout().trainable_ranges()) {
        const auto mine = arena->slice(share_of(range, replicas_));
        replicas_.gather(whole_of(*arena, range), mine, 0, arena->name())->wait();
      }
    }
  }

 private:
  // Scatters the first replica's trainable segments. Broadcasts other segments with
  // memory, such as the state of a GradScaler, which every rank updates.
  void scatter(Arena& arena) {
    for (const auto& range : arena.layout().ranges()) {
      if (!arena.layout().segments()[static_cast<size_t>(range.segment)].trainable) {
        if (arena.holds(range.segment)) {
          replicas_.broadcast(arena.slice(range), 0, arena.name())->wait();
        }
        continue;
      }
      const auto mine = arena.slice(share_of(range, replicas_));
      replicas_.scatter(mine, whole_of(arena, range), 0, arena.name())->wait();
    }
  }

  at::Tensor whole_of(Arena& arena, const ArenaRange& range) const {
    return replicas_.rank() == 0 ? arena.slice(range) : at::Tensor();
  }

  Communicator& replicas_;
  StrategyParts parts_;
  // The trainable segments, and this rank's shares of these segments.
  std::vector<ArenaRange> trainable_;
  std::vector<ArenaRange> own_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_update_rule(
    OptimizerState kind, Communicator& replicas, const StrategyParts& parts) {
  if (kind == OptimizerState::sharded) {
    return std::make_unique<ShardedUpdate>(replicas, parts);
  }
  return std::make_unique<ReplicatedUpdate>(replicas, parts);
}

}  // namespace tandem

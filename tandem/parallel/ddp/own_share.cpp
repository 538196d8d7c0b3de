#include "tandem/parallel/ddp/own_share.h"

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem {

OwnShare::OwnShare(ModelArenas& arenas, Sharding kind, const Communicator& comm)
    : arenas_(arenas), sharded_(kind > Sharding::none) {
  const ArenaLayout& layout = arenas.parameters().layout();
  if (!sharded_) {
    ranges_ = layout.trainable_ranges();
    for (const auto& entry : arenas.state()) {
      if (entry.tensor.requires_grad()) {
        tensors_.push_back(entry);
        parts_.push_back({0, entry.tensor.numel()});
      }
    }
    return;
  }
  ranges_ = layout.parts(comm.rank(), comm.size());
  for (size_t i = 0; i < ranges_.size(); ++i) {
    add_parts_of(layout.buckets()[i], ranges_[i]);
  }
}

void OwnShare::add_parts_of(const Bucket& bucket, const ArenaRange& part) {
  for (const size_t index : bucket.slots) {
    const Slot& slot = arenas_.parameters().layout().slots()[index];
    const ArenaRange mine = slot.range().overlap(part);
    if (mine.size() > 0) {
      auto tensor = arenas_.parameters().slice(mine);
      gradients_.push_back(arenas_.gradients().slice(mine));
      tensor.mutable_grad() = gradients_.back();
      tensors_.push_back({slot.name, tensor});
      parts_.push_back({mine.begin - slot.offset, mine.end - slot.offset});
    }
  }
}

void OwnShare::check_attached() const {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const auto& gradient = tensors_[i].tensor.grad();
    if (!gradient.defined() || !gradient.is_alias_of(gradients_[i])) {
      throw ConfigError(
          "[ddp] the gradient of this rank's share of '" + tensors_[i].name +
          "' was unset or replaced; call zero_grad() of ShardedOptimizer or "
          "DistributedDataParallel instead");
    }
  }
}

void OwnShare::clear_other_gradients() {
  Arena& gradients = arenas_.gradients();
  const auto& buckets = gradients.layout().buckets();
  for (size_t i = 0; sharded_ && i < buckets.size(); ++i) {
    const ArenaRange& whole = buckets[i].range;
    gradients.slice({whole.segment, whole.begin, ranges_[i].begin}).zero_();
    gradients.slice({whole.segment, ranges_[i].end, whole.end}).zero_();
  }
}

}  // namespace tandem

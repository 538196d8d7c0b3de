#include "tandem/parallel/update/update_rule.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "tandem/comm/exchange.h"
#include "tandem/optim/grad_scaler.h"
#include "tandem/parallel/update/arena_update.h"

namespace tandem {

UpdateRule::UpdateRule(
    Sharding kind, Communicator& replicas, const StrategyParts& parts)
    : replicas_(replicas),
      parts_(parts),
      sharded_(kind > Sharding::none),
      divides_parameters_(kind == Sharding::parameters),
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
    if (sharded_ && !divides_parameters_) {
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

// Returns the part of each slot that this rank updates; for slots outside of buckets,
// all elements.
std::vector<StatePart> UpdateRule::own_parts(const ArenaLayout& layout) const {
  const auto& slots = layout.slots();
  std::vector<StatePart> parts;
  for (const auto& slot : slots) {
    parts.push_back({0, slot.numel});
  }
  for (const auto& bucket : layout.buckets()) {
    const auto mine = bucket.part(replicas_.rank(), replicas_.size());
    for (const size_t i : bucket.slots) {
      const auto part = slots[i].range().overlap(mine);
      parts[i] = {part.begin - slots[i].offset, part.end - slots[i].offset};
    }
  }
  return parts;
}

std::vector<StatePart> UpdateRule::own_parts_of_model() const {
  const auto parts = own_parts(parts_.arenas.parameters().layout());
  const auto& tensors = parts_.arenas.tensors();
  std::vector<StatePart> of_model;
  for (const auto& entry : parts_.arenas.state()) {
    const auto slot = std::find_if(
        tensors.begin(), tensors.end(),
        [&](const at::Tensor& tensor) { return tensor.is_same(entry.tensor); });
    of_model.push_back(
        slot == tensors.end() ? StatePart{0, entry.tensor.numel()}
                              : parts[static_cast<size_t>(slot - tensors.begin())]);
  }
  return of_model;
}

TrainingState UpdateRule::state_to_load() {
  auto state = local_state(parts_.arenas, parts_.optimizer);
  if (!sharded_) {
    return state;
  }
  if (divides_parameters_) {
    state.model_parts = own_parts_of_model();
  }
  for (const Arena* arena : parts_.optimizer.state()) {
    const auto& layout = arena->layout();
    const auto parts = own_parts(layout);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (arena->holds(layout.slots()[i].segment)) {
        state.optimizer_parts.push_back(parts[i]);
      }
    }
  }
  return state;
}

// Returns the arenas of which this rank has only its part of each bucket.
std::vector<Arena*> UpdateRule::divided_arenas() const {
  std::vector<Arena*> arenas;
  for (Arena* arena : parts_.optimizer.state()) {
    if (!arena->layout().buckets().empty()) {
      arenas.push_back(arena);
    }
  }
  if (divides_parameters_) {
    arenas.push_back(&parts_.arenas.parameters());
  }
  return arenas;
}

// Returns the replica that visits each bucket. The largest buckets are assigned first,
// each to the replica with the fewest bytes.
std::vector<int> UpdateRule::visitors_of_buckets(
    const TrainingState& outside, bool may_visit) const {
  const auto arenas = static_cast<int64_t>(divided_arenas().size());
  std::vector<int64_t> bytes;
  for (const auto& bucket : buckets()) {
    bytes.push_back(
        arenas *
        static_cast<int64_t>(parts_.arenas.parameters().slice(bucket.range).nbytes()));
  }
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return bytes[a] > bytes[b];
  });
  std::vector<int64_t> loads;
  for (const auto& may :
       exchange_numbers({may_visit ? 1 : 0}, "visitors of the state", replicas_)) {
    constexpr int64_t kTooMany = std::numeric_limits<int64_t>::max() / 2;
    loads.push_back(may[0] == 1 ? 0 : kTooMany);
  }
  for (const auto& entry : outside.model) {
    loads[0] += static_cast<int64_t>(entry.tensor.nbytes());
  }
  std::vector<int> visitors(bytes.size());
  for (const size_t i : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += bytes[i];
    visitors[i] = static_cast<int>(least - loads.begin());
  }
  return visitors;
}

// Returns the state of the parameters in each bucket, and then the state that every
// replica has.
std::vector<TrainingState> UpdateRule::pieces() const {
  std::vector<TrainingState> pieces(buckets().size() + 1);
  const auto& tensors = parts_.arenas.tensors();
  std::vector<size_t> bucket_of_slot(tensors.size(), buckets().size());
  std::map<const at::TensorImpl*, size_t> bucket_of_tensor;
  for (size_t i = 0; i < buckets().size(); ++i) {
    for (const size_t slot : buckets()[i].slots) {
      bucket_of_slot[slot] = i;
      bucket_of_tensor[tensors[slot].unsafeGetTensorImpl()] = i;
    }
  }
  // A parameter with several names is in the model under each name.
  for (const auto& entry : parts_.arenas.state()) {
    const auto found = bucket_of_tensor.find(entry.tensor.unsafeGetTensorImpl());
    const bool is_divided = divides_parameters_ && found != bucket_of_tensor.end();
    pieces[is_divided ? found->second : buckets().size()].model.push_back(entry);
  }
  for (const Arena* arena : parts_.optimizer.state()) {
    const auto& layout = arena->layout();
    for (size_t slot = 0; slot < layout.slots().size(); ++slot) {
      const Slot& place = layout.slots()[slot];
      if (arena->holds(place.segment)) {
        pieces[layout.buckets().empty() ? buckets().size() : bucket_of_slot[slot]]
            .optimizer.push_back({arena->name() + "/" + place.name, arena->view(slot)});
      }
    }
  }
  return pieces;
}

void UpdateRule::visit_state(const StateVisitor& visit, bool may_visit) {
  const auto arenas = divided_arenas();
  const auto pieces = this->pieces();
  const auto visitors = visitors_of_buckets(pieces.back(), may_visit);
  const int rank = replicas_.rank();
  for (size_t i = 0; !arenas.empty() && i < visitors.size(); ++i) {
    const Bucket& bucket = buckets()[i];
    const auto mine = bucket.part(rank, replicas_.size());
    const bool visits = visitors[i] == rank;
    for (const Arena* arena : arenas) {
      const auto whole = visits ? arena->slice(bucket.range) : at::Tensor();
      replicas_.gather(whole, arena->slice(mine), visitors[i], arena->name())->wait();
    }
    if (visits) {
      visit(pieces[i]);
    }
    for (Arena* arena : visits ? arenas : std::vector<Arena*>()) {
      arena->release_except(bucket.range, mine);
    }
  }
  if (rank == 0) {
    visit(pieces.back());
  }
}

}  // namespace tandem

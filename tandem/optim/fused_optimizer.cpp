#include "tandem/optim/fused_optimizer.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {

FusedOptimizer::FusedOptimizer(
    const OptimizerOptions& options, Arena& parameters, Arena& gradients,
    const std::vector<ParameterGroup>& groups)
    : options_(options),
      parameters_(parameters),
      gradients_(gradients),
      groups_(groups),
      layout_(std::make_shared<const ArenaLayout>(parameters_.layout())) {
  for (const auto& group : groups_) {
    check_setting("lr_scale", group.lr_scale, group.lr_scale >= 0, "at least 0");
    check_setting(
        "weight_decay_scale", group.weight_decay_scale, group.weight_decay_scale >= 0,
        "at least 0");
  }
  check_arenas();
  plan_runs();
  algorithm_ = make_algorithm(options_);
  for (size_t i = 0; i < algorithm_->state_names().size(); ++i) {
    add_state(i);
  }
}

void FusedOptimizer::check_arenas() const {
  TANDEM_CHECK(
      &parameters_.layout() == &gradients_.layout() ||
          parameters_.layout().describe() == gradients_.layout().describe(),
      "parameters and gradients have different layouts");
  for (const auto& segment : layout_->segments()) {
    if (!segment.trainable) {
      continue;
    }
    if (segment.dtype != at::kFloat && segment.dtype != at::kDouble) {
      throw ConfigError(fmt::format(
          "[optim] the parameters' dtype is {}, expected Float or Double; change the "
          "model's dtype",
          c10::toString(segment.dtype)));
    }
  }
}

void FusedOptimizer::plan_runs() {
  runs_.resize(layout_->segments().size());
  for (const auto& slot : layout_->slots()) {
    const auto group = static_cast<size_t>(slot.group);
    if (slot.group < 0 || group >= groups_.size()) {
      throw ConfigError(fmt::format(
          "[optim] parameter '{}' is in group {}, but there are {} groups; change "
          "group_of or the list of groups",
          slot.name, slot.group, groups_.size()));
    }
    auto& runs = runs_[static_cast<size_t>(slot.segment)];
    const int64_t numel = parameters_.segment(slot.segment).numel();
    if (runs.empty()) {
      runs.push_back({0, numel, group});
    } else if (runs.back().group != group) {
      runs.back().end = slot.offset;
      runs.push_back({slot.offset, numel, group});
    }
  }
}

// Returns the layout of the parameters if each parameter has the state in its own
// shape, otherwise a layout of only this state. Sets `slots` (State).
std::shared_ptr<const ArenaLayout> FusedOptimizer::layout_of_state(
    size_t index, std::vector<std::optional<size_t>>& slots) const {
  std::vector<NamedTensor> tensors;
  bool has_own_layout = false;
  for (const auto& slot : layout_->slots()) {
    const Segment& segment = layout_->segments()[static_cast<size_t>(slot.segment)];
    const auto dims = algorithm_->state_dims(index, slot.dims);
    has_own_layout = has_own_layout || dims != slot.dims;
    slots.emplace_back();
    if (dims && segment.trainable) {
      slots.back() = tensors.size();
      auto tensor =
          at::empty(*dims, at::TensorOptions(segment.dtype).device(segment.device));
      tensors.push_back({slot.name, tensor.set_requires_grad(true)});
    }
  }
  if (has_own_layout) {
    return std::make_shared<const ArenaLayout>(tensors, std::vector<int64_t>{}, 1);
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i] = i;
  }
  return layout_;
}

void FusedOptimizer::add_state(size_t index) {
  State state;
  const auto layout = layout_of_state(index, state.slots);
  state.arena = std::make_unique<Arena>(
      layout, algorithm_->state_names()[index], trainable_only(heap_allocator()));
  for (size_t i = 0; algorithm_->initial_state() != 0 && i < layout->slots().size();
       ++i) {
    if (state.arena->holds(layout->slots()[i].segment)) {
      state.arena->view(i).fill_(algorithm_->initial_state());
    }
  }
  states_.push_back(std::move(state));
}

GroupContext FusedOptimizer::context_of(size_t group, const StepScalars& step) const {
  return {
      step.lr * groups_[group].lr_scale,
      options_.weight_decay * groups_[group].weight_decay_scale, step.gradient_scale,
      step.step};
}

void FusedOptimizer::update(const ArenaRange& range, const StepScalars& step) {
  const auto segment = static_cast<size_t>(range.segment);
  TANDEM_CHECK(
      range.segment >= 0 && segment < runs_.size() && range.begin >= 0 &&
          range.begin <= range.end &&
          range.end <= parameters_.segment(range.segment).numel(),
      "an update is outside the arena");
  TANDEM_CHECK(step.step >= 1 || step.skip, "optimizer steps count from 1");
  if (!layout_->segments()[segment].trainable || step.skip) {
    return;
  }
  if (needs_whole_tensors()) {
    update_slots(range, step);
    return;
  }
  const auto& runs = runs_[segment];
  auto run = std::partition_point(
      runs.begin(), runs.end(), [&](const Run& r) { return r.end <= range.begin; });
  for (; run != runs.end() && run->begin < range.end; ++run) {
    update_run(
        range.overlap({range.segment, run->begin, run->end}),
        context_of(run->group, step));
  }
}

void FusedOptimizer::update_run(const ArenaRange& run, const GroupContext& context) {
  const auto& segment = parameters_.segment(run.segment);
  if (!segment.is_cpu()) {
    UpdateTensors tensors{parameters_.slice(run), gradients_.slice(run), {}};
    for (const auto& state : states_) {
      tensors.states.push_back(state.arena->slice(run));
    }
    algorithm_->update_tensors(tensors, context);
    return;
  }
  const auto pointer = [&](const Arena& arena) {
    const auto& memory = arena.segment(run.segment);
    return static_cast<char*>(memory.data_ptr()) +
           run.begin * static_cast<int64_t>(memory.itemsize());
  };
  Elements elements{
      segment.scalar_type(), run.size(), pointer(parameters_), pointer(gradients_)};
  for (size_t i = 0; i < states_.size(); ++i) {
    elements.states[i] = pointer(*states_[i].arena);
  }
  update_in_threads(elements, [&](const Elements& part) {
    algorithm_->update_elements(part, context);
  });
}

void FusedOptimizer::update_slots(const ArenaRange& range, const StepScalars& step) {
  for (size_t i = 0; i < layout_->slots().size(); ++i) {
    const Slot& slot = layout_->slots()[i];
    const ArenaRange own = slot.range();
    if (slot.segment != range.segment || own.size() == 0 || own.end <= range.begin ||
        own.begin >= range.end) {
      continue;
    }
    TANDEM_CHECK(
        own.begin >= range.begin && own.end <= range.end,
        "an update has a part of '" + slot.name + "', expected whole tensors for " +
            name_of(options_.kind));
    UpdateTensors tensors{parameters_.view(i), gradients_.view(i), {}};
    for (const auto& state : states_) {
      tensors.states.push_back(
          state.slots[i] ? state.arena->view(*state.slots[i]) : at::Tensor());
    }
    algorithm_->update_tensors(
        tensors, context_of(static_cast<size_t>(slot.group), step));
  }
}

std::vector<Arena*> FusedOptimizer::state() {
  std::vector<Arena*> arenas;
  for (const auto& state : states_) {
    if (!state.arena->layout().slots().empty()) {
      arenas.push_back(state.arena.get());
    }
  }
  return arenas;
}

}  // namespace tandem

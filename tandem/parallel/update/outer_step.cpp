#include "tandem/parallel/update/outer_step.h"

#include <ATen/ops/full.h>
#include <ATen/ops/sub.h>

#include <memory>

namespace tandem {

namespace {

Arena like(const Arena& parameters, const char* name) {
  return {
      std::make_shared<ArenaLayout>(parameters.layout()), name,
      trainable_only(heap_allocator())};
}

}  // namespace

OuterStep::OuterStep(Arena& parameters, double lr, double momentum)
    : parameters_(parameters),
      lr_(lr),
      momentum_(momentum),
      base_(like(parameters, "outer_base")),
      velocity_(like(parameters, "outer_momentum")),
      has_base_(at::full({1}, 0, at::kLong)) {}

void OuterStep::begin() {
  if (has_base_.item<int64_t>() != 0) {
    return;
  }
  for (const auto& range : parameters_.layout().trainable_ranges()) {
    base_.slice(range).copy_(parameters_.slice(range));
  }
  has_base_.fill_(1);
}

void OuterStep::step() {
  for (const auto& range : parameters_.layout().trainable_ranges()) {
    const auto base = base_.slice(range);
    const auto velocity = velocity_.slice(range);
    const auto parameters = parameters_.slice(range);
    const auto gradient = at::sub(base, parameters);
    velocity.mul_(momentum_).add_(gradient);
    base.sub_(gradient.add_(velocity, momentum_), lr_);
    parameters.copy_(base);
  }
}

std::vector<NamedTensor> OuterStep::state() const {
  std::vector<NamedTensor> state = {{"outer_base/is_set", has_base_}};
  for (const Arena* arena : {&base_, &velocity_}) {
    const auto views = arena->named_views();
    state.insert(state.end(), views.begin(), views.end());
  }
  return state;
}

}  // namespace tandem

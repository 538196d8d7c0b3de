#include "tandem/optim/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/config/fields.h"
#include "tandem/core/parallel.h"
#include "tandem/optim/ema.h"
#include "tandem/optim/fused_optimizer.h"

namespace tandem {

namespace {

// Minimum number of elements per thread.
constexpr int64_t kGrain = 65'536;

// Sets unset options to PyTorch's defaults.
OptimizerOptions with_defaults(OptimizerOptions options) {
  const bool adadelta = options.kind == OptimizerKind::adadelta;
  const auto set = [](double& value, double fallback) {
    value = value == OptimizerOptions::kUnset ? fallback : value;
  };
  set(options.lr, adadelta ? 1 : 1e-3);
  set(options.weight_decay, options.kind == OptimizerKind::adamw ? 1e-2 : 0);
  set(options.eps, adadelta ? 1e-6 : 1e-8);
  return options;
}

}  // namespace

FusedOptimizer::FusedOptimizer(const OptimizerParts& parts)
    : options_(parts.options),
      parameters_(parts.parameters),
      gradients_(parts.gradients),
      groups_(parts.groups),
      layout_(std::make_shared<const ArenaLayout>(parameters_.layout())) {
  for (const auto& group : groups_) {
    check_setting("lr_scale", group.lr_scale, group.lr_scale >= 0, "at least 0");
    check_setting(
        "weight_decay_scale", group.weight_decay_scale, group.weight_decay_scale >= 0,
        "at least 0");
  }
  check_arenas();
  plan_runs();
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

void FusedOptimizer::update(const ArenaRange& range, const StepScalars& step) {
  const auto segment = static_cast<size_t>(range.segment);
  TANDEM_CHECK(
      range.segment >= 0 && segment < runs_.size() && range.begin >= 0 &&
          range.begin <= range.end &&
          range.end <= parameters_.segment(range.segment).numel(),
      "an update is outside the arena");
  TANDEM_CHECK(step.step >= 1 || step.skip, "optimizer steps count from 1");
  const Segment& updated = layout_->segments()[segment];
  if (!updated.trainable || step.skip) {
    return;
  }
  const auto& runs = runs_[segment];
  auto run = std::partition_point(
      runs.begin(), runs.end(), [&](const Run& r) { return r.end <= range.begin; });
  for (; run != runs.end() && run->begin < range.end; ++run) {
    const auto& group = groups_[run->group];
    const GroupContext context{
        step.lr * group.lr_scale, options_.weight_decay * group.weight_decay_scale,
        step.gradient_scale, step.step};
    const ArenaRange overlap{
        range.segment, std::max(run->begin, range.begin),
        std::min(run->end, range.end)};
    if (!updated.device.is_cpu()) {
      update_run_on_device(overlap, context);
      continue;
    }
    parallel_for(overlap.begin, overlap.end, kGrain, [&](int64_t begin, int64_t end) {
      update_run({range.segment, begin, end}, context);
    });
  }
}

std::vector<Arena*> FusedOptimizer::state() {
  std::vector<Arena*> arenas;
  for (const auto& arena : state_) {
    arenas.push_back(arena.get());
  }
  return arenas;
}

Arena& FusedOptimizer::add_state(const std::string& name) {
  state_.push_back(
      std::make_unique<Arena>(layout_, name, trainable_only(heap_allocator())));
  return *state_.back();
}

at::Tensor decayed_gradient(
    const at::Tensor& grad, const at::Tensor& param, double gradient_scale,
    double weight_decay) {
  auto g = grad.mul(gradient_scale);
  return weight_decay != 0 ? g.add_(param, weight_decay) : g;
}

void check_setting(
    const std::string& name, double value, bool holds, const std::string& expected) {
  if (!holds || !std::isfinite(value)) {
    throw ConfigError(fmt::format(
        "[optim] {} is {}, expected {}; change {}", name, value, expected, name));
  }
}

std::unique_ptr<Optimizer> make_optimizer(
    const OptimizerOptions& options, Arena& parameters, Arena& gradients,
    const std::vector<ParameterGroup>& groups) {
  check_options(options);
  const OptimizerParts parts{with_defaults(options), parameters, gradients, groups};
  auto optimizer = with_kind(options.kind, [&](auto kind) {
    std::unique_ptr<Optimizer> make_fused_optimizer(
        decltype(kind), const OptimizerParts&);
    return make_fused_optimizer(kind, parts);
  });
  return options.ema_decay > 0
             ? make_ema_optimizer(std::move(optimizer), parameters, options.ema_decay)
             : std::move(optimizer);
}

}  // namespace tandem

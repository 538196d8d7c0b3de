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

double value_or(double value, double fallback) {
  return value == OptimizerOptions::kUnset ? fallback : value;
}

}  // namespace

FusedOptimizer::FusedOptimizer(
    const OptimizerParts& parts, double default_lr, double default_weight_decay)
    : parameters_(parts.parameters),
      gradients_(parts.gradients),
      lr_(value_or(parts.options.lr, default_lr)),
      weight_decay_(value_or(parts.options.weight_decay, default_weight_decay)),
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

template <typename Body>
void FusedOptimizer::for_each_run(
    const ArenaRange& range, const StepScalars& step, const Body& body) const {
  const auto& runs = runs_[static_cast<size_t>(range.segment)];
  auto run = std::partition_point(
      runs.begin(), runs.end(), [&](const Run& r) { return r.end <= range.begin; });
  for (; run != runs.end() && run->begin < range.end; ++run) {
    const auto& group = groups_[run->group];
    body(
        ArenaRange{
            range.segment, std::max(run->begin, range.begin),
            std::min(run->end, range.end)},
        GroupContext{
            step.lr * group.lr_scale, weight_decay_ * group.weight_decay_scale,
            step.gradient_scale, step.step});
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
  if (!updated.device.is_cpu()) {
    for_each_run(range, step, [&](const ArenaRange& run, const GroupContext& context) {
      update_run_on_device(run, context);
    });
    return;
  }
  for_each_run(range, step, [&](const ArenaRange& run, const GroupContext& context) {
    parallel_for(run.begin, run.end, kGrain, [&](int64_t begin, int64_t end) {
      update_run({run.segment, begin, end}, context);
    });
  });
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

double eps_of(const OptimizerOptions& options, double default_eps) {
  return value_or(options.eps, default_eps);
}

std::unique_ptr<Optimizer> make_optimizer(
    const OptimizerOptions& options, Arena& parameters, Arena& gradients,
    const std::vector<ParameterGroup>& groups) {
  check_options(options);
  const OptimizerParts parts{options, parameters, gradients, groups};
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

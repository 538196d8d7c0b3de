#include "tandem/optim/grad_scaler.h"

#include <ATen/ops/zeros.h>
#include <fmt/core.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/core/simd.h"
#include "tandem/optim/fused_optimizer.h"

namespace tandem {

namespace {

enum Slots : size_t { kScale, kGrowthTracker, kSkippedSteps };

Arena make_state() {
  const std::vector<NamedTensor> tensors = {
      {"scale", at::zeros({}, at::kFloat)},
      {"growth_tracker", at::zeros({}, at::kLong)},
      {"skipped_steps", at::zeros({}, at::kLong)}};
  return Arena(
      std::make_shared<const ArenaLayout>(tensors, std::vector<int64_t>(), 1),
      "grad_scaler");
}

// Number of partial sums of values times 0. Such a sum is 0 unless a value is not
// finite. With several sums, the compiler can vectorise the loop without changing the
// order in a sum.
constexpr int64_t kLanes = 32;

template <typename T>
TANDEM_ALWAYS_INLINE bool unscale_elements(int64_t n, T* values, T factor) {
  T poison[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      poison[lane] += values[i + lane] * T(0);
      values[i + lane] *= factor;
    }
  }
  for (; i < n; ++i) {
    poison[0] += values[i] * T(0);
    values[i] *= factor;
  }
  bool finite = true;
  for (const T lane : poison) {
    finite = finite && lane == T(0);
  }
  return finite;
}

TANDEM_SIMD_CLONES bool unscale_all(int64_t n, float* values, float factor) {
  return unscale_elements(n, values, factor);
}

TANDEM_SIMD_CLONES bool unscale_all(int64_t n, double* values, double factor) {
  return unscale_elements(n, values, factor);
}

// Multiplies the values by `factor`, the inverse of the scale. Returns whether all were
// finite.
bool unscale_slice(at::Tensor slice, double factor) {
  if (!slice.is_cpu()) {
    const auto poison = slice.mul(0).sum();
    slice.mul_(factor);
    return poison.item<double>() == 0;
  }
  return slice.scalar_type() == at::kDouble
             ? unscale_all(slice.numel(), slice.data_ptr<double>(), factor)
             : unscale_all(
                   slice.numel(), slice.data_ptr<float>(), static_cast<float>(factor));
}

// Throws ConfigError unless unscale_slice() can change the gradient.
const at::Tensor& checked_gradient(const at::Tensor& gradient) {
  const bool has_dtype =
      gradient.scalar_type() == at::kFloat || gradient.scalar_type() == at::kDouble;
  if (!has_dtype || gradient.is_sparse() || !gradient.is_non_overlapping_and_dense()) {
    throw ConfigError(fmt::format(
        "[optim] GradScaler got a {} gradient of dtype {}, expected a dense one of "
        "float32 or float64; use Autocast with parameters of float32",
        gradient.is_sparse() ? "sparse" : "dense",
        c10::toString(gradient.scalar_type())));
  }
  return gradient;
}

int64_t& count_of(const Arena& state, size_t slot) {
  return *state.view(slot).data_ptr<int64_t>();
}

float& scale_of(const Arena& state) {
  return *state.view(kScale).data_ptr<float>();
}

class ScaledOptimizer : public Optimizer {
 public:
  ScaledOptimizer(
      std::unique_ptr<Optimizer> optimizer, const GradScalerOptions& options)
      : optimizer_(std::move(optimizer)), scaler_(options) {}

  void update(const ArenaRange& range, const StepScalars& step) override {
    optimizer_->update(range, step);
  }

  std::vector<Arena*> state() override {
    auto arenas = optimizer_->state();
    arenas.push_back(&scaler_.state());
    return arenas;
  }

  bool needs_whole_tensors() const override {
    return optimizer_->needs_whole_tensors();
  }

  double base_lr() const override {
    return optimizer_->base_lr();
  }

  GradScaler* scaler() override {
    return &scaler_;
  }

 private:
  std::unique_ptr<Optimizer> optimizer_;
  GradScaler scaler_;
};

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), state_(make_state()) {
  const auto initial = static_cast<float>(options.initial_scale);
  check_setting(
      "loss_scale", options.initial_scale, std::isnormal(initial) && initial > 0,
      "none, dynamic, or a number more than 0 that float32 can hold");
  state_.view(kScale).fill_(initial);
}

double GradScaler::scale() const {
  return scale_of(state_);
}

bool GradScaler::unscale(
    const Arena& gradients, const std::vector<ArenaRange>& ranges) const {
  // Like Python, computes the inverse in float64.
  const double factor = 1.0 / scale();
  bool finite = true;
  for (const auto& range : ranges) {
    finite = unscale_slice(gradients.slice(range), factor) && finite;
  }
  return finite;
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  return loss.mul(scale());
}

void GradScaler::unscale(torch::optim::Optimizer& optimizer) {
  if (finite_.count(&optimizer) > 0) {
    throw Error(
        "[optim] GradScaler::unscale() was called twice in a step, expected once; call "
        "update() at the end of each step");
  }
  const double factor = 1.0 / scale();
  bool finite = true;
  for (auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) {
        finite = unscale_slice(checked_gradient(parameter.grad()), factor) && finite;
      }
    }
  }
  if (auto* const ranks = dynamic_cast<CommonDecision*>(&optimizer)) {
    finite = ranks->holds_on_all_ranks(finite);
  }
  finite_[&optimizer] = finite;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (finite_.count(&optimizer) == 0) {
    unscale(optimizer);
  }
  const bool finite = finite_.at(&optimizer);
  if (finite) {
    optimizer.step();
  }
  return finite;
}

void GradScaler::update() {
  const bool finite = std::all_of(
      finite_.begin(), finite_.end(), [](const auto& entry) { return entry.second; });
  finite_.clear();
  StepScalars step;
  end_step(finite, step);
  check_skipped_steps(++updates_);
}

void GradScaler::end_step(bool finite, StepScalars& step) {
  int64_t& skipped_steps = count_of(state_, kSkippedSteps);
  skipped_steps += finite ? 0 : 1;
  step.skip = !finite;
  step.step -= skipped_steps;
  step.skipped_steps = skipped_steps;
  if (options_.dynamic) {
    set_next_scale(finite);
  }
}

// The scale may become 0.
void GradScaler::set_next_scale(bool finite) {
  float& scale = scale_of(state_);
  int64_t& growth_tracker = count_of(state_, kGrowthTracker);
  if (!finite) {
    scale = static_cast<float>(scale * options_.backoff_factor);
    growth_tracker = 0;
  } else if (++growth_tracker == options_.growth_interval) {
    const auto more = static_cast<float>(scale * options_.growth_factor);
    scale = more <= options_.max_scale ? more : scale;
    growth_tracker = 0;
  }
}

void GradScaler::check_skipped_steps(int64_t steps_done) {
  if (!std::isnormal(static_cast<float>(scale()))) {
    throw Error(
        "[optim] gradients are not finite at any loss scale, down to 1e-38; lower "
        "--lr, set --clip-norm, or use --precision fp32");
  }
  if (!options_.dynamic && skipped_steps() > 0 && !std::exchange(warned_, true)) {
    log_warning(fmt::format(
        "[optim] {} of {} steps were skipped because gradients overflowed; lower "
        "--loss-scale, or set it to dynamic",
        skipped_steps(), steps_done));
  }
}

int64_t GradScaler::skipped_steps() const {
  return count_of(state_, kSkippedSteps);
}

std::optional<GradScalerOptions> scaler_options(const ExecOptions& exec) {
  if (exec.loss_scale == ExecOptions::kNoScale) {
    return std::nullopt;
  }
  GradScalerOptions options;
  if (exec.precision == Precision::fp16) {
    options.max_scale = 1 << 24;
  }
  if (exec.loss_scale != ExecOptions::kDynamicScale) {
    options.initial_scale = exec.loss_scale;
    options.dynamic = false;
  }
  return options;
}

std::unique_ptr<Optimizer> make_scaled_optimizer(
    std::unique_ptr<Optimizer> optimizer, const GradScalerOptions& options) {
  return std::make_unique<ScaledOptimizer>(std::move(optimizer), options);
}

}  // namespace tandem

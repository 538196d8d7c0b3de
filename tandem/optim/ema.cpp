#include "tandem/optim/ema.h"

#include <algorithm>
#include <utility>

#include "tandem/core/parallel.h"
#include "tandem/core/simd.h"

namespace tandem {

namespace {

// Minimum number of elements per thread.
constexpr int64_t kGrain = 65'536;

// Number of elements that are updated and then averaged. These parameters are still in
// the L2 cache when they are averaged, so the update and the average together read main
// memory only once.
constexpr int64_t kPiece = 8'192;

template <typename T>
TANDEM_ALWAYS_INLINE void average_each(
    int64_t n, const T* __restrict param, T* __restrict average, T decay, T rest) {
  for (int64_t i = 0; i < n; ++i) {
    average[i] = decay * average[i] + rest * param[i];
  }
}

TANDEM_SIMD_CLONES void average_elements(
    int64_t n, const float* param, float* average, float decay, float rest) {
  average_each(n, param, average, decay, rest);
}

TANDEM_SIMD_CLONES void average_elements(
    int64_t n, const double* param, double* average, double decay, double rest) {
  average_each(n, param, average, decay, rest);
}

class EmaOptimizer : public Optimizer {
 public:
  EmaOptimizer(std::unique_ptr<Optimizer> optimizer, Arena& parameters, double decay)
      : optimizer_(std::move(optimizer)),
        parameters_(parameters),
        average_(std::make_shared<const ArenaLayout>(parameters.layout()), kEma),
        decay_(decay) {
    for (const auto& range : parameters.layout().ranges()) {
      if (!segment_of(range).trainable) {
        average_.slice(range).copy_(parameters.slice(range));
      }
    }
  }

  void update(const ArenaRange& range, const StepScalars& step) override {
    const bool first = step.step + step.skipped_steps == 1;
    const bool whole = needs_whole_tensors();
    if (whole || !segment_of(range).device.is_cpu()) {
      optimizer_->update(range, step);
    }
    if (!segment_of(range).device.is_cpu()) {
      average(range, first);
      return;
    }
    parallel_for(range.begin, range.end, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kPiece) {
        const ArenaRange piece{range.segment, at, std::min(at + kPiece, end)};
        if (!whole) {
          optimizer_->update(piece, step);
        }
        average(piece, first);
      }
    });
  }

  bool needs_whole_tensors() const override {
    return optimizer_->needs_whole_tensors();
  }

  std::vector<Arena*> state() override {
    auto arenas = optimizer_->state();
    arenas.push_back(&average_);
    return arenas;
  }

  double base_lr() const override {
    return optimizer_->base_lr();
  }

  GradScaler* scaler() override {
    return optimizer_->scaler();
  }

 private:
  const Segment& segment_of(const ArenaRange& range) const {
    return parameters_.layout().segments().at(static_cast<size_t>(range.segment));
  }

  void average(const ArenaRange& range, bool first) {
    if (!segment_of(range).trainable) {
      return;
    }
    const auto param = parameters_.slice(range);
    auto average = average_.slice(range);
    if (first) {
      average.copy_(param);
    } else if (!param.is_cpu()) {
      average.mul_(decay_).add_(param, 1 - decay_);
    } else if (param.scalar_type() == at::kDouble) {
      average_elements(
          range.size(), param.data_ptr<double>(), average.data_ptr<double>(), decay_,
          1 - decay_);
    } else {
      average_elements(
          range.size(), param.data_ptr<float>(), average.data_ptr<float>(),
          static_cast<float>(decay_), static_cast<float>(1 - decay_));
    }
  }

  std::unique_ptr<Optimizer> optimizer_;
  Arena& parameters_;
  Arena average_;
  double decay_;
};

}  // namespace

std::unique_ptr<Optimizer> make_ema_optimizer(
    std::unique_ptr<Optimizer> optimizer, Arena& parameters, double decay) {
  return std::make_unique<EmaOptimizer>(std::move(optimizer), parameters, decay);
}

}  // namespace tandem

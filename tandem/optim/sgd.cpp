#include "tandem/base/error.h"
#include "tandem/optim/fused_optimizer.h"

namespace tandem {

namespace {

// Values of a step that are equal for all elements. T is float or double.
template <typename T>
struct SgdFactors {
  T gradient_scale;
  T weight_decay;
  T momentum;
  T undamped;
  T minus_lr;
  bool first_step;
  bool nesterov;
};

template <typename T>
TANDEM_ALWAYS_INLINE SgdFactors<T> factors_of(
    const OptimizerOptions& options, const GroupContext& context) {
  return {
      static_cast<T>(context.gradient_scale),
      static_cast<T>(context.weight_decay),
      static_cast<T>(options.momentum),
      static_cast<T>(1 - options.dampening),
      static_cast<T>(-context.lr),
      context.step == 1,
      options.nesterov};
}

// Updates one element without momentum.
template <typename T>
TANDEM_ALWAYS_INLINE void sgd_element(T grad, T& param, const SgdFactors<T>& f) {
  param += f.minus_lr * decayed_gradient(grad, param, f.gradient_scale, f.weight_decay);
}

// Updates one element with momentum. The first step initializes the buffer.
template <typename T>
TANDEM_ALWAYS_INLINE void sgd_element(
    T grad, T& param, T& buffer, const SgdFactors<T>& f) {
  const T g = decayed_gradient(grad, param, f.gradient_scale, f.weight_decay);
  const T b = f.first_step ? g : f.momentum * buffer + f.undamped * g;
  buffer = b;
  param += f.minus_lr * (f.nesterov ? g + f.momentum * b : b);
}

// The conditions are equal for all elements, so compilers move them out of the loops
// and vectorise the loops.

template <typename T>
TANDEM_ALWAYS_INLINE void update_plain(
    int64_t n, T* __restrict param, const T* __restrict grad, const SgdFactors<T> f) {
  for (int64_t i = 0; i < n; ++i) {
    sgd_element(grad[i], param[i], f);
  }
}

template <typename T>
TANDEM_ALWAYS_INLINE void update_with_momentum(
    int64_t n, T* __restrict param, const T* __restrict grad, T* __restrict buffer,
    const SgdFactors<T> f) {
  for (int64_t i = 0; i < n; ++i) {
    sgd_element(grad[i], param[i], buffer[i], f);
  }
}

TANDEM_SIMD_CLONES void update_elements(
    int64_t n, float* param, const float* grad, float* buffer, SgdFactors<float> f) {
  if (buffer == nullptr) {
    update_plain(n, param, grad, f);
  } else {
    update_with_momentum(n, param, grad, buffer, f);
  }
}

TANDEM_SIMD_CLONES void update_elements(
    int64_t n, double* param, const double* grad, double* buffer,
    SgdFactors<double> f) {
  if (buffer == nullptr) {
    update_plain(n, param, grad, f);
  } else {
    update_with_momentum(n, param, grad, buffer, f);
  }
}

class Sgd final : public FusedOptimizer {
 public:
  explicit Sgd(const OptimizerParts& parts) : FusedOptimizer(parts) {
    if (options_.nesterov && (options_.momentum == 0 || options_.dampening != 0)) {
      throw ConfigError(
          "[optim] nesterov needs momentum and no dampening; set momentum above 0 and "
          "dampening to 0");
    }
    if (options_.momentum != 0) {
      buffer_ = &add_state("momentum_buffer");
    }
  }

 private:
  void update_run(const ArenaRange& run, const GroupContext& context) override {
    with_dtype(run, [&](auto zero) {
      using T = decltype(zero);
      update_elements(
          run.size(), data<T>(parameters_, run), data<T>(gradients_, run),
          buffer_ == nullptr ? nullptr : data<T>(*buffer_, run),
          factors_of<T>(options_, context));
    });
  }

  void update_run_on_device(
      const ArenaRange& run, const GroupContext& context) override {
    const auto f = factors_of<double>(options_, context);
    auto param = parameters_.slice(run);
    auto g = decayed_gradient(
        gradients_.slice(run), param, f.gradient_scale, f.weight_decay);
    if (buffer_ != nullptr) {
      auto buffer = buffer_->slice(run);
      if (f.first_step) {
        buffer.copy_(g);
      } else {
        buffer.mul_(f.momentum).add_(g, f.undamped);
      }
      g = f.nesterov ? g.add_(buffer, f.momentum) : buffer;
    }
    param.add_(g, f.minus_lr);
  }

  Arena* buffer_ = nullptr;
};

}  // namespace

std::unique_ptr<Optimizer> make_fused_optimizer(
    KindTag<OptimizerKind::sgd>, const OptimizerParts& parts) {
  return std::make_unique<Sgd>(parts);
}

}  // namespace tandem

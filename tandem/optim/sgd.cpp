#include "tandem/base/error.h"
#include "tandem/optim/kernels.h"

namespace tandem {

namespace {

template <typename T>
struct Factors {
  T gradient_scale;
  T weight_decay;
  T momentum;
  T undamped;
  T minus_lr;
  bool first_step;
  bool nesterov;
};

// The conditions are the same for all elements: compilers take them out of the loops,
// which they then vectorise.

template <typename T>
TANDEM_ALWAYS_INLINE void update_plain(
    int64_t n, T* __restrict param, const T* __restrict grad, const Factors<T> f) {
  for (int64_t i = 0; i < n; ++i) {
    T g = f.gradient_scale * grad[i];
    if (f.weight_decay != 0) {
      g += f.weight_decay * param[i];
    }
    param[i] += f.minus_lr * g;
  }
}

template <typename T>
TANDEM_ALWAYS_INLINE void update_with_momentum(
    int64_t n, T* __restrict param, const T* __restrict grad, T* __restrict buffer,
    const Factors<T> f) {
  for (int64_t i = 0; i < n; ++i) {
    T g = f.gradient_scale * grad[i];
    if (f.weight_decay != 0) {
      g += f.weight_decay * param[i];
    }
    const T b = f.first_step ? g : f.momentum * buffer[i] + f.undamped * g;
    buffer[i] = b;
    param[i] += f.minus_lr * (f.nesterov ? g + f.momentum * b : b);
  }
}

TANDEM_SIMD_CLONES void update_elements(
    int64_t n, float* param, const float* grad, float* buffer, Factors<float> f) {
  if (buffer == nullptr) {
    update_plain(n, param, grad, f);
  } else {
    update_with_momentum(n, param, grad, buffer, f);
  }
}

TANDEM_SIMD_CLONES void update_elements(
    int64_t n, double* param, const double* grad, double* buffer, Factors<double> f) {
  if (buffer == nullptr) {
    update_plain(n, param, grad, f);
  } else {
    update_with_momentum(n, param, grad, buffer, f);
  }
}

class Sgd final : public FusedOptimizer {
 public:
  Sgd(const OptimizerOptions& options, Arena& parameters, Arena& gradients,
      const std::vector<ParameterGroup>& groups)
      : FusedOptimizer(options, 1e-3, 0, parameters, gradients, groups),
        momentum_(options.momentum),
        dampening_(options.dampening),
        nesterov_(options.nesterov) {
    if (nesterov_ && (momentum_ == 0 || dampening_ != 0)) {
      throw ConfigError(
          "[optim] nesterov needs momentum and no dampening; change momentum to "
          "more than 0 and dampening to 0");
    }
    if (momentum_ != 0) {
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
          {static_cast<T>(context.gradient_scale), static_cast<T>(context.weight_decay),
           static_cast<T>(momentum_), static_cast<T>(1 - dampening_),
           static_cast<T>(-context.lr), context.step == 1, nesterov_});
    });
  }

  double momentum_;
  double dampening_;
  bool nesterov_;
  Arena* buffer_ = nullptr;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(
    const OptimizerOptions& options, Arena& parameters, Arena& gradients,
    const std::vector<ParameterGroup>& groups) {
  return std::make_unique<Sgd>(options, parameters, gradients, groups);
}

}  // namespace tandem

#include <cmath>

#include "tandem/optim/kernels.h"

namespace tandem {

namespace {

template <typename T>
struct Factors {
  T gradient_scale;
  // Adam adds this times the parameter to the gradient; AdamW multiplies the
  // parameter by `shrink`.
  T weight_decay;
  T shrink;
  T beta1;
  T one_minus_beta1;
  T beta2;
  T one_minus_beta2;
  T inverse_correction2_sqrt;
  T eps;
  T minus_step_size;
};

// `maximum` may be null: no amsgrad. The conditions are the same for all elements:
// compilers take them out of the loop, which they then vectorise.
//
// PyTorch divides by the root of the correction; its inverse as a factor differs in the
// last bit and saves one of two divisions.
template <typename T>
TANDEM_ALWAYS_INLINE void update_each(
    int64_t n, T* __restrict param, const T* __restrict grad, T* __restrict exp_avg,
    T* __restrict exp_avg_sq, T* __restrict maximum, const Factors<T> f) {
  const bool amsgrad = maximum != nullptr;
  for (int64_t i = 0; i < n; ++i) {
    T p = param[i];
    T g = f.gradient_scale * grad[i];
    if (f.weight_decay != 0) {
      g += f.weight_decay * p;
    }
    p *= f.shrink;
    const T m = f.beta1 * exp_avg[i] + f.one_minus_beta1 * g;
    T v = f.beta2 * exp_avg_sq[i] + f.one_minus_beta2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    if (amsgrad) {
      v = maximum[i] > v ? maximum[i] : v;
      maximum[i] = v;
    }
    const T denominator = std::sqrt(v) * f.inverse_correction2_sqrt + f.eps;
    param[i] = p + f.minus_step_size * m / denominator;
  }
}

TANDEM_SIMD_CLONES void update_elements(
    int64_t n, float* param, const float* grad, float* exp_avg, float* exp_avg_sq,
    float* maximum, Factors<float> f) {
  update_each(n, param, grad, exp_avg, exp_avg_sq, maximum, f);
}

TANDEM_SIMD_CLONES void update_elements(
    int64_t n, double* param, const double* grad, double* exp_avg, double* exp_avg_sq,
    double* maximum, Factors<double> f) {
  update_each(n, param, grad, exp_avg, exp_avg_sq, maximum, f);
}

class Adam final : public FusedOptimizer {
 public:
  // `decoupled`: AdamW.
  Adam(
      bool decoupled, const OptimizerOptions& options, Arena& parameters,
      Arena& gradients, const std::vector<ParameterGroup>& groups)
      : FusedOptimizer(
            options, 1e-3, decoupled ? 1e-2 : 0, parameters, gradients, groups),
        decoupled_(decoupled),
        beta1_(options.beta1),
        beta2_(options.beta2),
        eps_(eps_of(options, 1e-8)),
        exp_avg_(add_state("exp_avg")),
        exp_avg_sq_(add_state("exp_avg_sq")),
        maximum_(options.amsgrad ? &add_state("max_exp_avg_sq") : nullptr) {
    check_setting("beta1", beta1_, beta1_ >= 0 && beta1_ < 1, "at least 0 and below 1");
    check_setting("beta2", beta2_, beta2_ >= 0 && beta2_ < 1, "at least 0 and below 1");
  }

 private:
  template <typename T>
  Factors<T> factors(const GroupContext& context) const {
    const auto step = static_cast<double>(context.step);
    const double correction1 = 1 - std::pow(beta1_, step);
    const double correction2 = 1 - std::pow(beta2_, step);
    const double shrink = decoupled_ ? 1 - context.lr * context.weight_decay : 1;
    return {
        static_cast<T>(context.gradient_scale),
        static_cast<T>(decoupled_ ? 0 : context.weight_decay),
        static_cast<T>(shrink),
        static_cast<T>(beta1_),
        static_cast<T>(1 - beta1_),
        static_cast<T>(beta2_),
        static_cast<T>(1 - beta2_),
        static_cast<T>(1 / std::sqrt(correction2)),
        static_cast<T>(eps_),
        static_cast<T>(-(context.lr / correction1))};
  }

  void update_run(const ArenaRange& run, const GroupContext& context) override {
    with_dtype(run, [&](auto zero) {
      using T = decltype(zero);
      update_elements(
          run.size(), data<T>(parameters_, run), data<T>(gradients_, run),
          data<T>(exp_avg_, run), data<T>(exp_avg_sq_, run),
          maximum_ == nullptr ? nullptr : data<T>(*maximum_, run), factors<T>(context));
    });
  }

  bool decoupled_;
  double beta1_;
  double beta2_;
  double eps_;
  Arena& exp_avg_;
  Arena& exp_avg_sq_;
  Arena* maximum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adam(
    const OptimizerOptions& options, Arena& parameters, Arena& gradients,
    const std::vector<ParameterGroup>& groups) {
  return std::make_unique<Adam>(false, options, parameters, gradients, groups);
}

std::unique_ptr<Optimizer> make_adamw(
    const OptimizerOptions& options, Arena& parameters, Arena& gradients,
    const std::vector<ParameterGroup>& groups) {
  return std::make_unique<Adam>(true, options, parameters, gradients, groups);
}

}  // namespace tandem

#include <ATen/ops/maximum.h>

#include "tandem/core/updates/adam.h"
#include "tandem/optim/fused_optimizer.h"

namespace tandem {

namespace {

template <bool amsgrad, typename T>
TANDEM_ALWAYS_INLINE void update_loop(
    int64_t n, T* __restrict param, const T* __restrict grad, T* __restrict exp_avg,
    T* __restrict exp_avg_sq, T* __restrict maximum, const AdamFactors<T> f) {
  for (int64_t i = 0; i < n; ++i) {
    adam_element<amsgrad>(
        grad[i], param[i], exp_avg[i], exp_avg_sq[i], maximum + (amsgrad ? i : 0), f);
  }
}

// `maximum` may be null: no amsgrad.
template <typename T>
TANDEM_ALWAYS_INLINE void update_each(
    int64_t n, T* param, const T* grad, T* exp_avg, T* exp_avg_sq, T* maximum,
    const AdamFactors<T> f) {
  if (maximum == nullptr) {
    update_loop<false>(n, param, grad, exp_avg, exp_avg_sq, maximum, f);
  } else {
    update_loop<true>(n, param, grad, exp_avg, exp_avg_sq, maximum, f);
  }
}

TANDEM_SIMD_CLONES void update_elements(
    int64_t n, float* param, const float* grad, float* exp_avg, float* exp_avg_sq,
    float* maximum, AdamFactors<float> f) {
  update_each(n, param, grad, exp_avg, exp_avg_sq, maximum, f);
}

TANDEM_SIMD_CLONES void update_elements(
    int64_t n, double* param, const double* grad, double* exp_avg, double* exp_avg_sq,
    double* maximum, AdamFactors<double> f) {
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
        settings_{
            options.beta1, options.beta2, eps_of(options, AdamSettings().eps),
            decoupled},
        exp_avg_(add_state("exp_avg")),
        exp_avg_sq_(add_state("exp_avg_sq")),
        maximum_(options.amsgrad ? &add_state("max_exp_avg_sq") : nullptr) {
    const auto check = [](const char* name, double beta) {
      check_setting(name, beta, beta >= 0 && beta < 1, "at least 0 and below 1");
    };
    check("beta1", settings_.beta1);
    check("beta2", settings_.beta2);
  }

 private:
  void update_run(const ArenaRange& run, const GroupContext& context) override {
    with_dtype(run, [&](auto zero) {
      using T = decltype(zero);
      update_elements(
          run.size(), data<T>(parameters_, run), data<T>(gradients_, run),
          data<T>(exp_avg_, run), data<T>(exp_avg_sq_, run),
          maximum_ == nullptr ? nullptr : data<T>(*maximum_, run),
          factors_of<T>(settings_, context));
    });
  }

  void update_run_on_device(
      const ArenaRange& run, const GroupContext& context) override {
    const auto f = factors_of<double>(settings_, context);
    auto param = parameters_.slice(run);
    const auto g = decayed_gradient(
        gradients_.slice(run), param, f.gradient_scale, f.weight_decay);
    auto m = exp_avg_.slice(run);
    auto v = exp_avg_sq_.slice(run);
    m.mul_(f.beta1).add_(g, f.one_minus_beta1);
    v.mul_(f.beta2).addcmul_(g, g, f.one_minus_beta2);
    if (maximum_ != nullptr) {
      auto largest = maximum_->slice(run);
      v = largest.copy_(at::maximum(largest, v));
    }
    const auto denominator = v.sqrt().mul_(f.inverse_correction2_sqrt).add_(f.eps);
    param.mul_(f.shrink).addcdiv_(m, denominator, f.minus_step_size);
  }

  AdamSettings settings_;
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

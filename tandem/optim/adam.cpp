#include <ATen/ops/maximum.h>

#include <cmath>

#include "tandem/optim/fused_optimizer.h"

namespace tandem {

namespace {

// A number in double-double arithmetic: the sum of `high` and `low`, where `low` is
// smaller than the last bit of `high`.
struct DoubledDouble {
  double high;
  double low;
};

TANDEM_ALWAYS_INLINE DoubledDouble product(DoubledDouble a, DoubledDouble b) {
  const double high = a.high * b.high;
  const double low =
      std::fma(a.high, b.high, -high) + (a.high * b.low + a.low * b.high);
  const double sum = high + low;
  return {sum, low - (sum - high)};
}

// Returns base^exponent for 0 <= base < 1 and exponent >= 0, nearly always correctly
// rounded, with the same bits on every CPU and C library. For Adam's usual bases (0.9
// to 0.999, a million steps), 1 - power() equals 1 - pow() of glibc bit by bit.
TANDEM_ALWAYS_INLINE double power(double base, int64_t exponent) {
  DoubledDouble result{1, 0};
  DoubledDouble factor{base, 0};
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) {
      result = product(result, factor);
    }
    factor = product(factor, factor);
  }
  return result.high;
}

// Values of a step that are equal for all elements. T is float or double.
template <typename T>
struct AdamFactors {
  T gradient_scale;
  // Adam adds weight_decay times the parameter to the gradient. AdamW multiplies the
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

template <typename T>
TANDEM_ALWAYS_INLINE AdamFactors<T> factors_of(
    const OptimizerOptions& options, const GroupContext& context) {
  const double correction1 = 1 - power(options.beta1, context.step);
  const double correction2 = 1 - power(options.beta2, context.step);
  const bool decoupled = options.kind == OptimizerKind::adamw;
  const double shrink = decoupled ? 1 - context.lr * context.weight_decay : 1;
  return {
      static_cast<T>(context.gradient_scale),
      static_cast<T>(decoupled ? 0 : context.weight_decay),
      static_cast<T>(shrink),
      static_cast<T>(options.beta1),
      static_cast<T>(1 - options.beta1),
      static_cast<T>(options.beta2),
      static_cast<T>(1 - options.beta2),
      static_cast<T>(1 / std::sqrt(correction2)),
      static_cast<T>(options.eps),
      static_cast<T>(-(context.lr / correction1))};
}

// Updates one element. `largest` is used only with amsgrad; otherwise it may be null.
//
// PyTorch divides by the root of the bias correction. This function multiplies by the
// inverse of the root, which saves one of two divisions and may change the last bit.
template <bool amsgrad, typename T>
TANDEM_ALWAYS_INLINE void adam_element(
    T grad, T& param, T& exp_avg, T& exp_avg_sq, T* largest, const AdamFactors<T>& f) {
  T p = param;
  const T g = decayed_gradient(grad, p, f.gradient_scale, f.weight_decay);
  p *= f.shrink;
  const T m = f.beta1 * exp_avg + f.one_minus_beta1 * g;
  T v = f.beta2 * exp_avg_sq + f.one_minus_beta2 * g * g;
  exp_avg = m;
  exp_avg_sq = v;
  if (amsgrad) {
    v = *largest > v ? *largest : v;
    *largest = v;
  }
  const T denominator = std::sqrt(v) * f.inverse_correction2_sqrt + f.eps;
  param = p + f.minus_step_size * m / denominator;
}

template <bool amsgrad, typename T>
TANDEM_ALWAYS_INLINE void update_loop(
    int64_t n, T* __restrict param, const T* __restrict grad, T* __restrict exp_avg,
    T* __restrict exp_avg_sq, T* __restrict maximum, const AdamFactors<T> f) {
  for (int64_t i = 0; i < n; ++i) {
    adam_element<amsgrad>(
        grad[i], param[i], exp_avg[i], exp_avg_sq[i], maximum + (amsgrad ? i : 0), f);
  }
}

// `maximum` is null without amsgrad.
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
  explicit Adam(const OptimizerParts& parts)
      : FusedOptimizer(parts),
        exp_avg_(add_state("exp_avg")),
        exp_avg_sq_(add_state("exp_avg_sq")),
        maximum_(options_.amsgrad ? &add_state("max_exp_avg_sq") : nullptr) {
    const auto check = [](const char* name, double beta) {
      check_setting(name, beta, beta >= 0 && beta < 1, "at least 0 and below 1");
    };
    check("beta1", options_.beta1);
    check("beta2", options_.beta2);
  }

 private:
  void update_run(const ArenaRange& run, const GroupContext& context) override {
    with_dtype(run, [&](auto zero) {
      using T = decltype(zero);
      update_elements(
          run.size(), data<T>(parameters_, run), data<T>(gradients_, run),
          data<T>(exp_avg_, run), data<T>(exp_avg_sq_, run),
          maximum_ == nullptr ? nullptr : data<T>(*maximum_, run),
          factors_of<T>(options_, context));
    });
  }

  void update_run_on_device(
      const ArenaRange& run, const GroupContext& context) override {
    const auto f = factors_of<double>(options_, context);
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

  Arena& exp_avg_;
  Arena& exp_avg_sq_;
  Arena* maximum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_fused_optimizer(
    KindTag<OptimizerKind::adam>, const OptimizerParts& parts) {
  return std::make_unique<Adam>(parts);
}

std::unique_ptr<Optimizer> make_fused_optimizer(
    KindTag<OptimizerKind::adamw>, const OptimizerParts& parts) {
  return std::make_unique<Adam>(parts);
}

}  // namespace tandem

#include <cmath>

#include "tandem/optim/fused_optimizer.h"

namespace tandem {

namespace {

// Values of a step that are equal for all elements. T is float or double.
template <typename T>
struct AdadeltaFactors {
  T gradient_scale;
  T weight_decay;
  T rho;
  T one_minus_rho;
  T eps;
  T minus_lr;
};

template <typename T>
TANDEM_ALWAYS_INLINE AdadeltaFactors<T> factors_of(
    const OptimizerOptions& options, const GroupContext& context) {
  return {
      static_cast<T>(context.gradient_scale),
      static_cast<T>(context.weight_decay),
      static_cast<T>(options.rho),
      static_cast<T>(1 - options.rho),
      static_cast<T>(options.eps),
      static_cast<T>(-context.lr)};
}

// Updates one element.
//
// PyTorch divides one square root by another. This function computes the root of the
// quotient, which may differ in the last bit. With two roots, the computation would
// take longer than the memory accesses. (In float32, the quotient leaves the range of
// normal numbers for gradients above 1e16.)
template <typename T>
TANDEM_ALWAYS_INLINE void adadelta_element(
    T grad, T& param, T& square_avg, T& acc_delta, const AdadeltaFactors<T>& f) {
  const T g = decayed_gradient(grad, param, f.gradient_scale, f.weight_decay);
  const T s = f.rho * square_avg + f.one_minus_rho * g * g;
  const T a = acc_delta;
  const T delta = std::sqrt((a + f.eps) / (s + f.eps)) * g;
  square_avg = s;
  acc_delta = f.rho * a + f.one_minus_rho * delta * delta;
  param += f.minus_lr * delta;
}

template <typename T>
TANDEM_ALWAYS_INLINE void update_each(
    int64_t n, T* __restrict param, const T* __restrict grad, T* __restrict square_avg,
    T* __restrict acc_delta, const AdadeltaFactors<T> f) {
  for (int64_t i = 0; i < n; ++i) {
    adadelta_element(grad[i], param[i], square_avg[i], acc_delta[i], f);
  }
}

TANDEM_SIMD_CLONES void update_elements(
    int64_t n, float* param, const float* grad, float* square_avg, float* acc_delta,
    AdadeltaFactors<float> f) {
  update_each(n, param, grad, square_avg, acc_delta, f);
}

TANDEM_SIMD_CLONES void update_elements(
    int64_t n, double* param, const double* grad, double* square_avg, double* acc_delta,
    AdadeltaFactors<double> f) {
  update_each(n, param, grad, square_avg, acc_delta, f);
}

class Adadelta final : public FusedOptimizer {
 public:
  explicit Adadelta(const OptimizerParts& parts)
      : FusedOptimizer(parts),
        square_avg_(add_state("square_avg")),
        acc_delta_(add_state("acc_delta")) {}

 private:
  void update_run(const ArenaRange& run, const GroupContext& context) override {
    with_dtype(run, [&](auto zero) {
      using T = decltype(zero);
      update_elements(
          run.size(), data<T>(parameters_, run), data<T>(gradients_, run),
          data<T>(square_avg_, run), data<T>(acc_delta_, run),
          factors_of<T>(options_, context));
    });
  }

  void update_run_on_device(
      const ArenaRange& run, const GroupContext& context) override {
    const auto f = factors_of<double>(options_, context);
    auto param = parameters_.slice(run);
    const auto g = decayed_gradient(
        gradients_.slice(run), param, f.gradient_scale, f.weight_decay);
    auto s = square_avg_.slice(run);
    auto a = acc_delta_.slice(run);
    s.mul_(f.rho).addcmul_(g, g, f.one_minus_rho);
    const auto delta = a.add(f.eps).div_(s.add(f.eps)).sqrt_().mul_(g);
    a.mul_(f.rho).addcmul_(delta, delta, f.one_minus_rho);
    param.add_(delta, f.minus_lr);
  }

  Arena& square_avg_;
  Arena& acc_delta_;
};

}  // namespace

std::unique_ptr<Optimizer> make_fused_optimizer(
    KindTag<OptimizerKind::adadelta>, const OptimizerParts& parts) {
  return std::make_unique<Adadelta>(parts);
}

}  // namespace tandem

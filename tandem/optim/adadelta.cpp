#include <cmath>

#include "tandem/optim/kernels.h"

namespace tandem {

namespace {

template <typename T>
struct Factors {
  T gradient_scale;
  T weight_decay;
  T rho;
  T one_minus_rho;
  T eps;
  T minus_lr;
};

// The condition is the same for all elements: compilers take it out of the loop, which
// they then vectorise.
//
// PyTorch divides one root by another. The root of the quotient differs in the last bit
// and costs one root, not two: with two the pass waits for them, not for memory. (In
// float32 the quotient leaves the range of normal numbers for gradients above 1e16.)
template <typename T>
TANDEM_ALWAYS_INLINE void update_each(
    int64_t n, T* __restrict param, const T* __restrict grad, T* __restrict square_avg,
    T* __restrict acc_delta, const Factors<T> f) {
  for (int64_t i = 0; i < n; ++i) {
    T g = f.gradient_scale * grad[i];
    if (f.weight_decay != 0) {
      g += f.weight_decay * param[i];
    }
    const T s = f.rho * square_avg[i] + f.one_minus_rho * g * g;
    const T a = acc_delta[i];
    const T delta = std::sqrt((a + f.eps) / (s + f.eps)) * g;
    square_avg[i] = s;
    acc_delta[i] = f.rho * a + f.one_minus_rho * delta * delta;
    param[i] += f.minus_lr * delta;
  }
}

TANDEM_SIMD_CLONES void update_elements(
    int64_t n, float* param, const float* grad, float* square_avg, float* acc_delta,
    Factors<float> f) {
  update_each(n, param, grad, square_avg, acc_delta, f);
}

TANDEM_SIMD_CLONES void update_elements(
    int64_t n, double* param, const double* grad, double* square_avg, double* acc_delta,
    Factors<double> f) {
  update_each(n, param, grad, square_avg, acc_delta, f);
}

class Adadelta final : public FusedOptimizer {
 public:
  Adadelta(
      const OptimizerOptions& options, Arena& parameters, Arena& gradients,
      const std::vector<ParameterGroup>& groups)
      : FusedOptimizer(options, 1, 0, parameters, gradients, groups),
        rho_(options.rho),
        eps_(eps_of(options, 1e-6)),
        square_avg_(add_state("square_avg")),
        acc_delta_(add_state("acc_delta")) {}

 private:
  void update_run(const ArenaRange& run, const GroupContext& context) override {
    with_dtype(run, [&](auto zero) {
      using T = decltype(zero);
      update_elements(
          run.size(), data<T>(parameters_, run), data<T>(gradients_, run),
          data<T>(square_avg_, run), data<T>(acc_delta_, run),
          {static_cast<T>(context.gradient_scale), static_cast<T>(context.weight_decay),
           static_cast<T>(rho_), static_cast<T>(1 - rho_), static_cast<T>(eps_),
           static_cast<T>(-context.lr)});
    });
  }

  double rho_;
  double eps_;
  Arena& square_avg_;
  Arena& acc_delta_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adadelta(
    const OptimizerOptions& options, Arena& parameters, Arena& gradients,
    const std::vector<ParameterGroup>& groups) {
  return std::make_unique<Adadelta>(options, parameters, gradients, groups);
}

}  // namespace tandem

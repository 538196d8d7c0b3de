#include <ATen/TensorOperators.h>

#include <cmath>
#include <mutex>

#include "tandem/optim/moments.h"

namespace tandem {

namespace {

// Returns the momentum factor of a step. Long double has the same bits on every CPU of
// an architecture, because glibc's function for it has one version.
double momentum_of(const OptimizerOptions& options, int64_t step) {
  const auto exponent =
      static_cast<long double>(static_cast<double>(step) * options.momentum_decay);
  return options.beta1 * (1 - 0.5 * static_cast<double>(std::pow(0.96L, exponent)));
}

// Update of one element. T is float or double.
template <typename T>
struct NadamElement {
  // `product` is the product of the momentum factors of all steps up to this one.
  NadamElement(
      const OptimizerOptions& options, const GroupContext& context, double product)
      : moments(options, context, options.decoupled_weight_decay) {
    const double mu = momentum_of(options, context.step);
    const double next = momentum_of(options, context.step + 1);
    minus_step_of_gradient = static_cast<T>(-context.lr * (1 - mu) / (1 - product));
    minus_step_of_average = static_cast<T>(-context.lr * next / (1 - product * next));
  }

  TANDEM_ALWAYS_INLINE void operator()(
      T grad, T& param, T& exp_avg, T& exp_avg_sq) const {
    const T g = moments.gradient(grad, param);
    const T m = moments.average(g, exp_avg, exp_avg_sq);
    const T step = minus_step_of_gradient * g + minus_step_of_average * m;
    param = param * moments.shrink + step / moments.size(exp_avg_sq);
  }

  Moments<T> moments;
  T minus_step_of_gradient;
  T minus_step_of_average;
};

// Sources: torch/optim/nadam.py of PyTorch 2; Dozat, "Incorporating Nesterov Momentum
// into Adam", 2016. PyTorch 1.13 multiplies one momentum factor twice.
class NadamAlgorithm final : public Algorithm {
 public:
  explicit NadamAlgorithm(const OptimizerOptions& options)
      : Algorithm(options, {"exp_avg", "exp_avg_sq"}) {
    check_betas(options);
  }

  void update_elements(const Elements& elements, const GroupContext& context) override {
    with_dtype(elements.dtype, [&](auto zero) {
      using T = decltype(zero);
      update_each<2, T>(
          elements, NadamElement<T>(options_, context, product_until(context.step)));
    });
  }

  void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) override {
    const NadamElement<double> f(options_, context, product_until(context.step));
    const auto g = f.moments.gradient(tensors.grad, tensors.param);
    const auto& m = tensors.states[0];
    const auto& v = tensors.states[1];
    f.moments.average(g, m, v);
    const auto denominator = f.moments.size(v);
    tensors.param.mul_(f.moments.shrink)
        .addcdiv_(g, denominator, f.minus_step_of_gradient)
        .addcdiv_(m, denominator, f.minus_step_of_average);
  }

 private:
  // Returns the product of the momentum factors of steps 1 to `step`. Remembers it, so
  // that only a resumed run multiplies more than one factor.
  double product_until(int64_t step) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (step < last_step_) {
      last_step_ = 0;
      product_ = 1;
    }
    while (last_step_ < step) {
      ++last_step_;
      product_ *= momentum_of(options_, last_step_);
    }
    return product_;
  }

  std::mutex mutex_;
  int64_t last_step_ = 0;
  double product_ = 1;
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::nadam> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<NadamAlgorithm>(options);
}

}  // namespace tandem

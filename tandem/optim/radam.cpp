#include <ATen/TensorOperators.h>

#include <cmath>

#include "tandem/optim/moments.h"

namespace tandem {

namespace {

// Update of one element. T is float or double.
template <typename T>
struct RadamElement {
  RadamElement(const OptimizerOptions& options, const GroupContext& context)
      : moments(options, context, options.decoupled_weight_decay) {
    const double correction1 = 1 - power(options.beta1, context.step);
    const double power2 = power(options.beta2, context.step);
    const double correction2 = 1 - power2;
    const double longest = 2 / (1 - options.beta2) - 1;
    const double length =
        longest - 2 * static_cast<double>(context.step) * power2 / correction2;
    adapts = length > 5;
    const double rectified = adapts ? std::sqrt(
                                          (length - 4) * (length - 2) * longest /
                                          ((longest - 4) * (longest - 2) * length)) *
                                          std::sqrt(correction2)
                                    : 1;
    minus_step_size = static_cast<T>(-context.lr / correction1 * rectified);
  }

  TANDEM_ALWAYS_INLINE void operator()(
      T grad, T& param, T& exp_avg, T& exp_avg_sq) const {
    const T m = moments.average(moments.gradient(grad, param), exp_avg, exp_avg_sq);
    const T step = minus_step_size * m;
    param = param * moments.shrink +
            (adapts ? step / (std::sqrt(exp_avg_sq) + moments.eps) : step);
  }

  Moments<T> moments;
  T minus_step_size;
  // False in the first steps, in which the variance of the squares is too large.
  bool adapts;
};

// Source: torch/optim/radam.py; Liu et al., "On the Variance of the Adaptive Learning
// Rate and Beyond", ICLR 2020.
class RadamAlgorithm final : public Algorithm {
 public:
  explicit RadamAlgorithm(const OptimizerOptions& options)
      : Algorithm(options, {"exp_avg", "exp_avg_sq"}) {
    check_betas(options);
  }

  void update_elements(const Elements& elements, const GroupContext& context) override {
    with_dtype(elements.dtype, [&](auto zero) {
      using T = decltype(zero);
      update_each<2, T>(elements, RadamElement<T>(options_, context));
    });
  }

  void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) override {
    const RadamElement<double> f(options_, context);
    const auto g = f.moments.gradient(tensors.grad, tensors.param);
    const auto& m = tensors.states[0];
    const auto& v = tensors.states[1];
    f.moments.average(g, m, v);
    tensors.param.mul_(f.moments.shrink);
    if (f.adapts) {
      tensors.param.addcdiv_(m, v.sqrt().add_(f.moments.eps), f.minus_step_size);
    } else {
      tensors.param.add_(m, f.minus_step_size);
    }
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::radam> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<RadamAlgorithm>(options);
}

}  // namespace tandem

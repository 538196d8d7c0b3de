#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>

#include "tandem/optim/element_wise.h"

namespace tandem {

namespace {

// Update of one element. T is float or double.
template <typename T>
struct LionElement {
  LionElement(const OptimizerOptions& options, const GroupContext& context)
      : gradient_scale(static_cast<T>(context.gradient_scale)),
        shrink(static_cast<T>(1 - context.lr * context.weight_decay)),
        beta1(static_cast<T>(options.beta1)),
        one_minus_beta1(static_cast<T>(1 - options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        one_minus_beta2(static_cast<T>(1 - options.beta2)),
        lr(static_cast<T>(context.lr)) {}

  TANDEM_ALWAYS_INLINE void operator()(T grad, T& param, T& exp_avg) const {
    const T g = gradient_scale * grad;
    const T m = exp_avg;
    const T c = beta1 * m + one_minus_beta1 * g;
    exp_avg = beta2 * m + one_minus_beta2 * g;
    // The sign of NaN is NaN here, so that the run ends with an error.
    const T sign = c > 0 ? T{1} : c < 0 ? T{-1} : c;
    param = param * shrink - lr * sign;
  }

  T gradient_scale;
  T shrink;
  T beta1;
  T one_minus_beta1;
  T beta2;
  T one_minus_beta2;
  T lr;
};

// Source: Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023,
// algorithm 2.
class LionAlgorithm final : public Algorithm {
 public:
  explicit LionAlgorithm(const OptimizerOptions& options)
      : Algorithm(options, {"exp_avg"}) {
    check_betas(options);
  }

  void update_elements(const Elements& elements, const GroupContext& context) override {
    with_dtype(elements.dtype, [&](auto zero) {
      using T = decltype(zero);
      update_each<1, T>(elements, LionElement<T>(options_, context));
    });
  }

  void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) override {
    const LionElement<double> f(options_, context);
    const auto g = tensors.grad.mul(f.gradient_scale);
    const auto& m = tensors.states[0];
    const auto c = m.mul(f.beta1).add_(g, f.one_minus_beta1);
    m.mul_(f.beta2).add_(g, f.one_minus_beta2);
    const auto sign = at::where(c.isnan(), c, c.sign());
    tensors.param.mul_(f.shrink).sub_(sign, f.lr);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::lion> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<LionAlgorithm>(options);
}

}  // namespace tandem

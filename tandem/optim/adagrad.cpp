#include <ATen/TensorOperators.h>

#include <cmath>

#include "tandem/optim/element_wise.h"

namespace tandem {

namespace {

// Update of one element. T is float or double.
template <typename T>
struct AdagradElement {
  AdagradElement(const OptimizerOptions& options, const GroupContext& context)
      : gradient_scale(static_cast<T>(context.gradient_scale)),
        weight_decay(static_cast<T>(context.weight_decay)),
        eps(static_cast<T>(options.eps)),
        minus_lr(static_cast<T>(
            -context.lr /
            (1 + static_cast<double>(context.step - 1) * options.lr_decay))) {}

  TANDEM_ALWAYS_INLINE void operator()(T grad, T& param, T& sum) const {
    const T g = decayed_gradient(grad, param, gradient_scale, weight_decay);
    const T s = sum + g * g;
    sum = s;
    param += minus_lr * g / (std::sqrt(s) + eps);
  }

  T gradient_scale;
  T weight_decay;
  T eps;
  T minus_lr;
};

// Source: torch/optim/adagrad.py; Duchi et al., "Adaptive Subgradient Methods", JMLR
// 2011.
class Adagrad final : public Algorithm {
 public:
  explicit Adagrad(const OptimizerOptions& options) : Algorithm(options, {"sum"}) {}

  double initial_state() const override {
    return options_.initial_accumulator_value;
  }

  void update_elements(const Elements& elements, const GroupContext& context) override {
    with_dtype(elements.dtype, [&](auto zero) {
      using T = decltype(zero);
      update_each<1, T>(elements, AdagradElement<T>(options_, context));
    });
  }

  void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) override {
    const AdagradElement<double> f(options_, context);
    const auto g =
        decayed_gradient(tensors.grad, tensors.param, f.gradient_scale, f.weight_decay);
    const auto& sum = tensors.states[0];
    sum.addcmul_(g, g);
    tensors.param.addcdiv_(g, sum.sqrt().add_(f.eps), f.minus_lr);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::adagrad> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<Adagrad>(options);
}

}  // namespace tandem

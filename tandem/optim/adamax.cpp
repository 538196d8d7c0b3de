#include <ATen/TensorOperators.h>
#include <ATen/ops/maximum.h>

#include <cmath>

#include "tandem/optim/element_wise.h"
#include "tandem/optim/power.h"

namespace tandem {

namespace {

// Update of one element. T is float or double.
template <typename T>
struct AdamaxElement {
  AdamaxElement(const OptimizerOptions& options, const GroupContext& context)
      : gradient_scale(static_cast<T>(context.gradient_scale)),
        weight_decay(static_cast<T>(context.weight_decay)),
        beta1(static_cast<T>(options.beta1)),
        one_minus_beta1(static_cast<T>(1 - options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        eps(static_cast<T>(options.eps)),
        minus_step_size(
            static_cast<T>(-context.lr / (1 - power(options.beta1, context.step)))) {}

  TANDEM_ALWAYS_INLINE void operator()(T grad, T& param, T& exp_avg, T& exp_inf) const {
    const T g = decayed_gradient(grad, param, gradient_scale, weight_decay);
    const T m = beta1 * exp_avg + one_minus_beta1 * g;
    const T before = beta2 * exp_inf;
    const T now = std::abs(g) + eps;
    const T largest = before >= now ? before : now;
    exp_avg = m;
    // Without a gradient so far, PyTorch stores eps. The padding of arenas stays 0, and
    // the next step computes the same maximum from both.
    exp_inf = before == 0 && g == 0 ? T{0} : largest;
    param += minus_step_size * m / largest;
  }

  T gradient_scale;
  T weight_decay;
  T beta1;
  T one_minus_beta1;
  T beta2;
  T eps;
  T minus_step_size;
};

// Source: torch/optim/adamax.py; Kingma and Ba, "Adam: A Method for Stochastic
// Optimization", ICLR 2015, section 7.1.
class AdamaxAlgorithm final : public Algorithm {
 public:
  explicit AdamaxAlgorithm(const OptimizerOptions& options)
      : Algorithm(options, {"exp_avg", "exp_inf"}) {
    check_betas(options);
  }

  void update_elements(const Elements& elements, const GroupContext& context) override {
    with_dtype(elements.dtype, [&](auto zero) {
      using T = decltype(zero);
      update_each<2, T>(elements, AdamaxElement<T>(options_, context));
    });
  }

  void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) override {
    const AdamaxElement<double> f(options_, context);
    const auto g =
        decayed_gradient(tensors.grad, tensors.param, f.gradient_scale, f.weight_decay);
    const auto& m = tensors.states[0];
    const auto& largest = tensors.states[1];
    m.mul_(f.beta1).add_(g, f.one_minus_beta1);
    largest.copy_(at::maximum(largest.mul(f.beta2), g.abs().add_(f.eps)));
    tensors.param.addcdiv_(m, largest, f.minus_step_size);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::adamax> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<AdamaxAlgorithm>(options);
}

}  // namespace tandem

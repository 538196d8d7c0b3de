#include <ATen/TensorOperators.h>

#include <cmath>

#include "tandem/optim/element_wise.h"

namespace tandem {

namespace {

// Update of one element. T is float or double.
//
// PyTorch divides one square root by another. This struct computes the root of the
// quotient, which may differ in the last bit. With two roots, the computation would
// take longer than the memory accesses. (In float32, the quotient leaves the range of
// normal numbers for gradients above 1e16.)
template <typename T>
struct AdadeltaElement {
  AdadeltaElement(const OptimizerOptions& options, const GroupContext& context)
      : gradient_scale(static_cast<T>(context.gradient_scale)),
        weight_decay(static_cast<T>(context.weight_decay)),
        rho(static_cast<T>(options.rho)),
        one_minus_rho(static_cast<T>(1 - options.rho)),
        eps(static_cast<T>(options.eps)),
        minus_lr(static_cast<T>(-context.lr)) {}

  TANDEM_ALWAYS_INLINE void operator()(
      T grad, T& param, T& square_avg, T& acc_delta) const {
    const T g = decayed_gradient(grad, param, gradient_scale, weight_decay);
    const T s = rho * square_avg + one_minus_rho * g * g;
    const T a = acc_delta;
    const T delta = std::sqrt((a + eps) / (s + eps)) * g;
    square_avg = s;
    acc_delta = rho * a + one_minus_rho * delta * delta;
    param += minus_lr * delta;
  }

  T gradient_scale;
  T weight_decay;
  T rho;
  T one_minus_rho;
  T eps;
  T minus_lr;
};

// Source: Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012.
class AdadeltaAlgorithm final : public Algorithm {
 public:
  explicit AdadeltaAlgorithm(const OptimizerOptions& options)
      : Algorithm(options, {"square_avg", "acc_delta"}) {}

  void update_elements(const Elements& elements, const GroupContext& context) override {
    with_dtype(elements.dtype, [&](auto zero) {
      using T = decltype(zero);
      update_each<2, T>(elements, AdadeltaElement<T>(options_, context));
    });
  }

  void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) override {
    const AdadeltaElement<double> f(options_, context);
    const auto g =
        decayed_gradient(tensors.grad, tensors.param, f.gradient_scale, f.weight_decay);
    const auto& s = tensors.states[0];
    const auto& a = tensors.states[1];
    s.mul_(f.rho).addcmul_(g, g, f.one_minus_rho);
    const auto delta = a.add(f.eps).div_(s.add(f.eps)).sqrt_().mul_(g);
    a.mul_(f.rho).addcmul_(delta, delta, f.one_minus_rho);
    tensors.param.add_(delta, f.minus_lr);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::adadelta> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<AdadeltaAlgorithm>(options);
}

}  // namespace tandem

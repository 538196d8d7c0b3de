#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "tandem/optim/element_wise.h"
#include "tandem/optim/power.h"

namespace tandem {

namespace {

// Step of one element before it is multiplied by the learning rate and the trust ratio.
// T is float or double.
template <typename T>
struct LambElement {
  LambElement(const OptimizerOptions& options, const GroupContext& context)
      : gradient_scale(static_cast<T>(context.gradient_scale)),
        weight_decay(static_cast<T>(context.weight_decay)),
        beta1(static_cast<T>(options.beta1)),
        one_minus_beta1(static_cast<T>(1 - options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        one_minus_beta2(static_cast<T>(1 - options.beta2)),
        inverse_correction1(
            static_cast<T>(1 / (1 - power(options.beta1, context.step)))),
        inverse_correction2_sqrt(
            static_cast<T>(1 / std::sqrt(1 - power(options.beta2, context.step)))),
        eps(static_cast<T>(options.eps)) {}

  TANDEM_ALWAYS_INLINE void operator()(
      T grad, T& param, T& exp_avg, T& exp_avg_sq, T& step) const {
    const T g = gradient_scale * grad;
    const T m = beta1 * exp_avg + one_minus_beta1 * g;
    const T v = beta2 * exp_avg_sq + one_minus_beta2 * g * g;
    exp_avg = m;
    exp_avg_sq = v;
    const T size = std::sqrt(v) * inverse_correction2_sqrt + eps;
    step = inverse_correction1 * m / size + weight_decay * param;
  }

  T gradient_scale;
  T weight_decay;
  T beta1;
  T one_minus_beta1;
  T beta2;
  T one_minus_beta2;
  T inverse_correction1;
  T inverse_correction2_sqrt;
  T eps;
};

// Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76
// minutes", ICLR 2020, algorithm 2, with phi(z) = z. The trust ratio is 1 if a norm is
// 0, as in NVIDIA's Apex.
class LambAlgorithm final : public Algorithm {
 public:
  explicit LambAlgorithm(const OptimizerOptions& options)
      : Algorithm(options, {"exp_avg", "exp_avg_sq"}) {
    check_betas(options);
  }

  void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) override {
    const auto& param = tensors.param;
    const auto step = step_of(tensors, context);
    const auto length = norm_of(param);
    const auto step_length = norm_of(step);
    const auto ratio = at::where(
        length.gt(0).logical_and(step_length.gt(0)), length.div(step_length),
        at::ones_like(length));
    // Each of these operators rounds once per element, so the number of threads does
    // not change the bits.
    param.sub_(step.mul_(ratio.mul(context.lr)));
  }

 private:
  at::Tensor step_of(UpdateTensors tensors, const GroupContext& context) const {
    const auto step = at::empty_like(tensors.param);
    tensors.states.push_back(step);
    if (const auto elements = elements_of(tensors)) {
      update_in_threads(*elements, [&](const Elements& part) {
        with_dtype(part.dtype, [&](auto zero) {
          using T = decltype(zero);
          update_each<3, T>(part, LambElement<T>(options_, context));
        });
      });
      return step;
    }
    const LambElement<double> f(options_, context);
    const auto g = tensors.grad.mul(f.gradient_scale);
    const auto& m = tensors.states[0];
    const auto& v = tensors.states[1];
    m.mul_(f.beta1).add_(g, f.one_minus_beta1);
    v.mul_(f.beta2).addcmul_(g, g, f.one_minus_beta2);
    step.copy_(m).mul_(f.inverse_correction1);
    step.div_(v.sqrt().mul_(f.inverse_correction2_sqrt).add_(f.eps));
    return step.add_(tensors.param, f.weight_decay);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::lamb> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<LambAlgorithm>(options);
}

}  // namespace tandem

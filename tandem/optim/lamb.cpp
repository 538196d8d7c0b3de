#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include "tandem/optim/moments.h"

namespace tandem {

namespace {

// Step of one element before it is multiplied by the learning rate and the trust ratio.
// T is float or double.
template <typename T>
struct LambElement {
  LambElement(const OptimizerOptions& options, const GroupContext& context)
      : moments(options, context, true),
        weight_decay(static_cast<T>(context.weight_decay)),
        inverse_correction1(
            static_cast<T>(1 / (1 - power(options.beta1, context.step)))) {}

  TANDEM_ALWAYS_INLINE void operator()(
      T grad, T& param, T& exp_avg, T& exp_avg_sq, T& step) const {
    const T m = moments.average(moments.gradient(grad, param), exp_avg, exp_avg_sq);
    step = inverse_correction1 * m / moments.size(exp_avg_sq) + weight_decay * param;
  }

  Moments<T> moments;
  T weight_decay;
  T inverse_correction1;
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
    const auto& m = tensors.states[0];
    const auto& v = tensors.states[1];
    f.moments.average(f.moments.gradient(tensors.grad, tensors.param), m, v);
    step.copy_(m).mul_(f.inverse_correction1).div_(f.moments.size(v));
    return step.add_(tensors.param, f.weight_decay);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::lamb> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<LambAlgorithm>(options);
}

}  // namespace tandem

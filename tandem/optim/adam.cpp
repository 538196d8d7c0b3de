#include <ATen/TensorOperators.h>
#include <ATen/ops/maximum.h>

#include "tandem/optim/moments.h"

namespace tandem {

namespace {

// Update of one element. T is float or double.
//
// PyTorch divides by the root of the bias correction. This struct multiplies by the
// inverse of the root, which saves one of two divisions and may change the last bit.
template <typename T>
struct AdamElement {
  AdamElement(const OptimizerOptions& options, const GroupContext& context)
      : moments(options, context, options.kind != OptimizerKind::adam),
        minus_step_size(
            static_cast<T>(-(context.lr / (1 - power(options.beta1, context.step))))) {}

  TANDEM_ALWAYS_INLINE void operator()(
      T grad, T& param, T& exp_avg, T& exp_avg_sq) const {
    const T m = moments.average(moments.gradient(grad, param), exp_avg, exp_avg_sq);
    param = moved(param, m, exp_avg_sq);
  }

  // With amsgrad.
  TANDEM_ALWAYS_INLINE void operator()(
      T grad, T& param, T& exp_avg, T& exp_avg_sq, T& largest) const {
    const T m = moments.average(moments.gradient(grad, param), exp_avg, exp_avg_sq);
    const T v = exp_avg_sq;
    largest = largest > v ? largest : v;
    param = moved(param, m, largest);
  }

  TANDEM_ALWAYS_INLINE T moved(T param, T m, T v) const {
    return param * moments.shrink + minus_step_size * m / moments.size(v);
  }

  Moments<T> moments;
  T minus_step_size;
};

class Adam final : public Algorithm {
 public:
  explicit Adam(const OptimizerOptions& options)
      : Algorithm(
            options,
            options.amsgrad
                ? std::vector<std::string>{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
                : std::vector<std::string>{"exp_avg", "exp_avg_sq"}) {
    check_betas(options);
  }

  void update_elements(const Elements& elements, const GroupContext& context) override {
    with_dtype(elements.dtype, [&](auto zero) {
      using T = decltype(zero);
      const AdamElement<T> element(options_, context);
      if (options_.amsgrad) {
        update_each<3, T>(elements, element);
      } else {
        update_each<2, T>(elements, element);
      }
    });
  }

  void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) override {
    const AdamElement<double> f(options_, context);
    const auto g = f.moments.gradient(tensors.grad, tensors.param);
    const auto& m = tensors.states[0];
    auto v = tensors.states[1];
    f.moments.average(g, m, v);
    if (options_.amsgrad) {
      const auto& largest = tensors.states[2];
      v = largest.copy_(at::maximum(largest, v));
    }
    tensors.param.mul_(f.moments.shrink)
        .addcdiv_(m, f.moments.size(v), f.minus_step_size);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::adam> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<Adam>(options);
}

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::adamw> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<Adam>(options);
}

}  // namespace tandem

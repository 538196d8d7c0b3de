#include <ATen/TensorOperators.h>

#include "tandem/base/error.h"
#include "tandem/optim/element_wise.h"

namespace tandem {

namespace {

// Update of one element. T is float or double.
template <typename T>
struct SgdElement {
  SgdElement(const OptimizerOptions& options, const GroupContext& context)
      : gradient_scale(static_cast<T>(context.gradient_scale)),
        weight_decay(static_cast<T>(context.weight_decay)),
        momentum(static_cast<T>(options.momentum)),
        undamped(static_cast<T>(1 - options.dampening)),
        minus_lr(static_cast<T>(-context.lr)),
        first_step(context.step == 1),
        nesterov(options.nesterov) {}

  // Without momentum.
  TANDEM_ALWAYS_INLINE void operator()(T grad, T& param) const {
    param += minus_lr * decayed_gradient(grad, param, gradient_scale, weight_decay);
  }

  // With momentum. The first step initializes the buffer.
  TANDEM_ALWAYS_INLINE void operator()(T grad, T& param, T& buffer) const {
    const T g = decayed_gradient(grad, param, gradient_scale, weight_decay);
    const T b = first_step ? g : momentum * buffer + undamped * g;
    buffer = b;
    param += minus_lr * (nesterov ? g + momentum * b : b);
  }

  T gradient_scale;
  T weight_decay;
  T momentum;
  T undamped;
  T minus_lr;
  bool first_step;
  bool nesterov;
};

class Sgd final : public Algorithm {
 public:
  explicit Sgd(const OptimizerOptions& options)
      : Algorithm(
            options, options.momentum == 0
                         ? std::vector<std::string>()
                         : std::vector<std::string>{"momentum_buffer"}) {
    if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
      throw ConfigError(
          "[optim] nesterov needs momentum and no dampening; set momentum above 0 and "
          "dampening to 0");
    }
  }

  void update_elements(const Elements& elements, const GroupContext& context) override {
    with_dtype(elements.dtype, [&](auto zero) {
      using T = decltype(zero);
      const SgdElement<T> element(options_, context);
      if (state_names().empty()) {
        update_each<0, T>(elements, element);
      } else {
        update_each<1, T>(elements, element);
      }
    });
  }

  void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) override {
    const SgdElement<double> f(options_, context);
    auto g =
        decayed_gradient(tensors.grad, tensors.param, f.gradient_scale, f.weight_decay);
    if (!tensors.states.empty()) {
      const auto& buffer = tensors.states[0];
      if (f.first_step) {
        buffer.copy_(g);
      } else {
        buffer.mul_(f.momentum).add_(g, f.undamped);
      }
      g = f.nesterov ? g.add_(buffer, f.momentum) : buffer;
    }
    tensors.param.add_(g, f.minus_lr);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::sgd> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<Sgd>(options);
}

}  // namespace tandem

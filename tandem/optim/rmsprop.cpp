#include <ATen/TensorOperators.h>

#include <cmath>

#include "tandem/optim/element_wise.h"

namespace tandem {

namespace {

// Update of one element. T is float or double.
template <typename T, bool centered>
struct RmspropElement {
  RmspropElement(const OptimizerOptions& options, const GroupContext& context)
      : gradient_scale(static_cast<T>(context.gradient_scale)),
        weight_decay(static_cast<T>(context.weight_decay)),
        alpha(static_cast<T>(options.alpha)),
        one_minus_alpha(static_cast<T>(1 - options.alpha)),
        eps(static_cast<T>(options.eps)),
        momentum(static_cast<T>(options.momentum)),
        minus_lr(static_cast<T>(-context.lr)) {}

  TANDEM_ALWAYS_INLINE void operator()(T grad, T& param, T& square_avg) const {
    param += minus_lr * direction(grad, param, square_avg, nullptr);
  }

  // `other` is the mean of gradients, or the momentum buffer.
  TANDEM_ALWAYS_INLINE void operator()(
      T grad, T& param, T& square_avg, T& other) const {
    if constexpr (centered) {
      param += minus_lr * direction(grad, param, square_avg, &other);
    } else {
      other = momentum * other + direction(grad, param, square_avg, nullptr);
      param += minus_lr * other;
    }
  }

  TANDEM_ALWAYS_INLINE void operator()(
      T grad, T& param, T& square_avg, T& grad_avg, T& buffer) const {
    buffer = momentum * buffer + direction(grad, param, square_avg, &grad_avg);
    param += minus_lr * buffer;
  }

  // Updates the means and returns the gradient divided by its size.
  TANDEM_ALWAYS_INLINE T direction(T grad, T param, T& square_avg, T* grad_avg) const {
    const T g = decayed_gradient(grad, param, gradient_scale, weight_decay);
    T square = alpha * square_avg + one_minus_alpha * g * g;
    square_avg = square;
    if constexpr (centered) {
      const T mean = alpha * *grad_avg + one_minus_alpha * g;
      *grad_avg = mean;
      square -= mean * mean;
      // If gradients are constant, rounding can make the variance negative. PyTorch
      // then computes NaN.
      square = square < 0 ? T{0} : square;
    }
    return g / (std::sqrt(square) + eps);
  }

  T gradient_scale;
  T weight_decay;
  T alpha;
  T one_minus_alpha;
  T eps;
  T momentum;
  T minus_lr;
};

std::vector<std::string> states_of(const OptimizerOptions& options) {
  std::vector<std::string> names = {"square_avg"};
  if (options.centered) {
    names.emplace_back("grad_avg");
  }
  if (options.momentum > 0) {
    names.emplace_back("momentum_buffer");
  }
  return names;
}

// Source: torch/optim/rmsprop.py.
class Rmsprop final : public Algorithm {
 public:
  explicit Rmsprop(const OptimizerOptions& options)
      : Algorithm(options, states_of(options)) {}

  void update_elements(const Elements& elements, const GroupContext& context) override {
    with_dtype(elements.dtype, [&](auto zero) {
      using T = decltype(zero);
      const RmspropElement<T, false> plain(options_, context);
      const RmspropElement<T, true> centered(options_, context);
      const bool has_momentum = options_.momentum > 0;
      if (options_.centered && has_momentum) {
        update_each<3, T>(elements, centered);
      } else if (options_.centered) {
        update_each<2, T>(elements, centered);
      } else if (has_momentum) {
        update_each<2, T>(elements, plain);
      } else {
        update_each<1, T>(elements, plain);
      }
    });
  }

  void update_tensors(
      const UpdateTensors& tensors, const GroupContext& context) override {
    const RmspropElement<double, false> f(options_, context);
    auto g =
        decayed_gradient(tensors.grad, tensors.param, f.gradient_scale, f.weight_decay);
    auto square = tensors.states[0];
    square.mul_(f.alpha).addcmul_(g, g, f.one_minus_alpha);
    if (options_.centered) {
      const auto& mean = tensors.states[1];
      mean.mul_(f.alpha).add_(g, f.one_minus_alpha);
      square = square.addcmul(mean, mean, -1).clamp_min_(0);
    }
    g.div_(square.sqrt().add_(f.eps));
    if (options_.momentum > 0) {
      g = tensors.states.back().mul_(f.momentum).add_(g);
    }
    tensors.param.add_(g, f.minus_lr);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_algorithm(
    KindTag<OptimizerKind::rmsprop> /*kind*/, const OptimizerOptions& options) {
  return std::make_unique<Rmsprop>(options);
}

}  // namespace tandem

// The optimizers' kernels against optim/, bit for bit.

#include "tandem/kernels/cuda/update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/core/updates/power.h"
#include "tests/cuda/orders.h"
#include "tests/optim/small_arenas.h"

namespace tandem::update_test {

constexpr double kWeightDecay = 0.01;
constexpr double kLrScale = 0.3;

// Parameter, gradient and up to three states, as exact arrays.
template <typename T>
struct OnDevice {
  std::vector<T> param, grad;
  std::vector<std::vector<T>> state;
};

template <typename T>
using Update =
    std::function<void(OnDevice<T>&, const GroupConstants&, const StepScalars&)>;

template <typename T>
T* state_at(OnDevice<T>& at, size_t index) {
  return index < at.state.size() ? at.state[index].data() : nullptr;
}

// The kernel that does what options ask for.
template <typename T>
Update<T> kernel_of(const OptimizerOptions& options) {
  return [options](
             OnDevice<T>& at, const GroupConstants& group,
             const StepScalars& scalars) {
    const auto count = static_cast<int64_t>(at.param.size());
    T* param = at.param.data();
    const T* grad = at.grad.data();
    if (options.kind == OptimizerKind::sgd) {
      const SgdSettings settings{options.momentum, options.dampening, options.nesterov};
      cuda::update_sgd(
          count, param, grad, state_at(at, 0), settings, group, &scalars, nullptr);
    } else if (options.kind == OptimizerKind::adadelta) {
      const AdadeltaSettings settings{options.rho, 1e-6};
      cuda::update_adadelta(
          count, param, grad, state_at(at, 0), state_at(at, 1), settings, group,
          &scalars, nullptr);
    } else {
      const AdamSettings settings{
          options.beta1, options.beta2, 1e-8, options.kind == OptimizerKind::adamw};
      cuda::update_adam(
          count, param, grad, state_at(at, 0), state_at(at, 1), state_at(at, 2),
          settings, group, &scalars, nullptr);
    }
  };
}

// As one_of_each(), and with less.
std::vector<OptimizerOptions> variants() {
  auto all = one_of_each();
  for (auto options : one_of_each()) {
    options.amsgrad = false;
    options.momentum = 0;
    options.weight_decay = 0;
    all.push_back(options);
  }
  auto nesterov = named("sgd");
  nesterov.momentum = 0.9;
  nesterov.nesterov = true;
  all.push_back(nesterov);
  auto damped = named("sgd");
  damped.momentum = 0.8;
  damped.dampening = 0.3;
  all.push_back(damped);
  for (auto& options : all) {
    options.weight_decay = options.weight_decay == 0 ? 0 : kWeightDecay;
  }
  return all;
}

// An optimizer of optim/ over one parameter, and the same arrays for a kernel.
template <typename T>
class Pair {
 public:
  Pair(const OptimizerOptions& options, int64_t count)
      : layout_(make_layout(count)),
        parameters_(layout_, "parameters"),
        gradients_(layout_, "gradients"),
        optimizer_(make_optimizer(options, parameters_, gradients_, {{kLrScale, 1}})),
        kernel_(kernel_of<T>(options)),
        weight_decay_(options.weight_decay) {
    for (int64_t i = 0; i < count; ++i) {
      values(parameters_)[i] = static_cast<T>(std::sin(0.7 * static_cast<double>(i)));
    }
    const auto size = static_cast<size_t>(count);
    device.param.assign(values(parameters_), values(parameters_) + count);
    device.grad.resize(size);
    device.state.resize(optimizer_->state().size(), std::vector<T>(size));
  }

  // Some gradients are 0, one is huge.
  void step(const StepScalars& scalars) {
    for (size_t i = 0; i < device.grad.size(); ++i) {
      const double angle =
          1.3 * static_cast<double>(i) + static_cast<double>(scalars.step);
      const double value = i % 7 == 3 ? 0 : std::cos(angle) * (i % 50 == 9 ? 1e9 : 0.1);
      device.grad[i] = static_cast<T>(value);
      values(gradients_)[i] = device.grad[i];
    }
    kernel_(device, {kLrScale, weight_decay_}, scalars);
    const auto count = static_cast<int64_t>(device.grad.size());
    optimizer_->update({0, 0, count}, scalars);
  }

  void expect_same_bits() {
    EXPECT_TRUE(same_bits(device.param, values(parameters_)));
    const auto states = optimizer_->state();
    for (size_t i = 0; i < states.size(); ++i) {
      EXPECT_TRUE(same_bits(device.state[i], values(*states[i]))) << states[i]->name();
    }
  }

  OnDevice<T> device;

 private:
  static std::shared_ptr<const ArenaLayout> make_layout(int64_t count) {
    const auto dtype = sizeof(T) == 4 ? at::kFloat : at::kDouble;
    const auto value = at::empty({count}, dtype).set_requires_grad(true);
    return std::make_shared<const ArenaLayout>(
        std::vector<NamedTensor>{{"p", value}}, std::vector<int64_t>(), 1);
  }
  static T* values(const Arena& arena) {
    return arena.segment(0).data_ptr<T>();
  }

  std::shared_ptr<const ArenaLayout> layout_;
  Arena parameters_;
  Arena gradients_;
  std::unique_ptr<Optimizer> optimizer_;
  Update<T> kernel_;
  double weight_decay_;
};

std::string description(const OptimizerOptions& options) {
  return std::string(name_of(options.kind)) + (options.amsgrad ? " amsgrad" : "") +
         (options.nesterov ? " nesterov" : "") + " momentum " +
         std::to_string(options.momentum);
}

template <typename T>
class UpdateKernels : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(UpdateKernels, Types);

TYPED_TEST(UpdateKernels, HaveTheBitsOfTheCpus) {
  for (const auto& options : variants()) {
    SCOPED_TRACE(description(options));
    in_orders([&] {
      for (const int64_t count : kSizes) {
        SCOPED_TRACE(count);
        Pair<TypeParam> pair(options, count);
        for (int64_t step = 1; step <= 3; ++step) {
          pair.step({0.1 / static_cast<double>(step), 0.7, step, 0});
        }
        // Far into a run.
        pair.step({0.1, 1, 123'456, 0});
        pair.expect_same_bits();
      }
    });
  }
}

TYPED_TEST(UpdateKernels, ChangeNothingInAStepThatIsLeftOut) {
  for (const auto& options : variants()) {
    SCOPED_TRACE(description(options));
    Pair<TypeParam> pair(options, 300);
    pair.step({0.1, 1, 1, 0});
    const auto before = pair.device.param;
    pair.step({0.1, 1, 2, 1});
    EXPECT_EQ(pair.device.param, before);
    pair.expect_same_bits();
    pair.step({0.1, 1, 2, 0});
    EXPECT_NE(pair.device.param, before);
    pair.expect_same_bits();
  }
}

TEST(Power, IsRoundedAsWellAsLibrariesDo) {
  for (const double base : {0.5, 0.9, 0.99, 0.999, 0.9999, 0.123}) {
    for (int64_t exponent = 0; exponent < 3000; exponent += 1 + exponent / 10) {
      const long double exact =
          std::pow(static_cast<long double>(base), static_cast<long double>(exponent));
      const auto nearest = static_cast<double>(exact);
      EXPECT_LE(
          std::abs(static_cast<long double>(power(base, exponent)) - exact),
          0.501L * static_cast<long double>(std::nextafter(nearest, 1) - nearest))
          << base << "^" << exponent;
    }
  }
  EXPECT_EQ(power(0, 0), 1);
  EXPECT_EQ(power(0, 5), 0);
  EXPECT_EQ(power(0.5, 1'000'000), 0);
}

}  // namespace tandem::update_test

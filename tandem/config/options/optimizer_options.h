#pragma once

#include <cstdint>
#include <string>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Optimizers, with the update rules of PyTorch.
enum class OptimizerKind { sgd, adam, adamw, adadelta };
template <>
struct Choices<OptimizerKind> {
  static constexpr Choice<OptimizerKind> rows[] = {
      {OptimizerKind::sgd, "sgd",
       "stochastic gradient descent: momentum, dampening, nesterov"},
      {OptimizerKind::adam, "adam", "Adam: beta1, beta2, eps, amsgrad"},
      {OptimizerKind::adamw, "adamw",
       "Adam with decoupled weight decay: settings of adam"},
      {OptimizerKind::adadelta, "adadelta", "Adadelta: rho, eps"}};
};

/// Settings of all optimizers, with the same meanings as in PyTorch. The value kUnset
/// of `lr`, `eps` or `weight_decay` selects the optimizer's default in PyTorch.
struct OptimizerOptions {
  static constexpr double kUnset = -1;

  OptimizerKind kind = OptimizerKind::sgd;
  double lr = kUnset;
  double weight_decay = kUnset;
  // False: no weight decay for biases and the parameters of norms.
  bool decay_bias_and_norm = true;
  double eps = kUnset;
  // Settings that apply only to sgd.
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  // Settings that apply only to adam and adamw.
  double beta1 = 0.9;
  double beta2 = 0.999;
  bool amsgrad = false;
  // Decay rate that applies only to adadelta.
  double rho = 0.9;
  // Factors for patterns of names (config/name_patterns.h), such as "fc.*=0.1". A
  // parameter gets the factor of the first pattern that matches its name.
  std::string lr_factor = {};
  std::string weight_decay_factor = {};
  // Decay of the exponential moving average of the parameters (optim/ema.h); 0: no
  // average.
  double ema_decay = 0;

  template <typename Table>
  static void describe(Table& table) {
    using O = OptimizerOptions;
    using K = OptimizerKind;
    table.section("optimizer");
    table.add("optimizer", &O::kind, "optimizer").at_the_end().kept();
    table.add("lr", &O::lr, "learning rate; -1: the optimizer's default")
        .between(0, kLarge)
        .or_unset(O::kUnset)
        .also({"--learning-rate"});
    table
        .add(
            "weight_decay", &O::weight_decay,
            "weight decay; -1: the optimizer's default")
        .between(0, kLarge)
        .or_unset(O::kUnset);
    table.add(
        "decay_bias_and_norm", &O::decay_bias_and_norm,
        "weight decay also for biases and norms, as in PyTorch");
    table.add(
        "lr_factor", &O::lr_factor,
        "factors on the learning rate per pattern of parameters, such as "
        "'conv1.*=0.1,fc.*=10'");
    table.add(
        "weight_decay_factor", &O::weight_decay_factor,
        "factors on the weight decay per pattern of parameters, such as 'fc.*=0'");
    table
        .add(
            "eps", &O::eps,
            "term that avoids division by 0; -1: the optimizer's default")
        .between(kTiny, kLarge)
        .or_unset(O::kUnset)
        .needs("optimizer", &O::kind, {K::adam, K::adamw, K::adadelta});
    // SGD has optimizer state only if momentum is not 0, so a resumed run cannot turn
    // momentum on or off.
    table.add("momentum", &O::momentum, "SGD momentum factor")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::sgd})
        .kept(ResumeRule::whether_default);
    table.add("dampening", &O::dampening, "dampening of the gradient in SGD momentum")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::sgd});
    table.add("nesterov", &O::nesterov, "Nesterov momentum")
        .needs("optimizer", &O::kind, {K::sgd});
    table.add("beta1", &O::beta1, "decay rate of the mean of gradients")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::adam, K::adamw});
    table.add("beta2", &O::beta2, "decay rate of the mean of squared gradients")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::adam, K::adamw});
    table
        .add(
            "amsgrad", &O::amsgrad,
            "AMSGrad: divide by the largest mean of squares so far")
        .needs("optimizer", &O::kind, {K::adam, K::adamw})
        .kept();
    table.add("rho", &O::rho, "decay rate of the means of squares")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::adadelta});
    table
        .add(
            "ema_decay", &O::ema_decay,
            "decay of the moving average of the weights, 0 to 1; 0: no average")
        .between(0, 1)
        .kept(ResumeRule::whether_default);
  }
};

}  // namespace tandem

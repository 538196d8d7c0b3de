#pragma once

#include <cstdint>

#include "tandem/config/options/setting.h"

namespace tandem {

enum class OptimizerKind { sgd, adam, adamw, adadelta };
template <>
struct Choices<OptimizerKind> {
  static constexpr Choice<OptimizerKind> rows[] = {
      {OptimizerKind::sgd, "sgd", "gradient descent; momentum, dampening, nesterov"},
      {OptimizerKind::adam, "adam", "Adam; beta1, beta2, eps, amsgrad"},
      {OptimizerKind::adamw, "adamw",
       "Adam with decoupled weight decay; settings as adam"},
      {OptimizerKind::adadelta, "adadelta", "Adadelta; rho, eps"}};
};

/// Settings of all optimizers, with PyTorch's meanings. An unset `lr`, `eps` or
/// `weight_decay` takes the optimizer's own PyTorch default.
struct OptimizerOptions {
  static constexpr double kUnset = -1;

  OptimizerKind kind = OptimizerKind::sgd;
  double lr = kUnset;
  double weight_decay = kUnset;
  // False: biases and norms are left out of weight decay.
  bool decay_bias_and_norm = true;
  double eps = kUnset;
  // SGD
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  // Adam, AdamW
  double beta1 = 0.9;
  double beta2 = 0.999;
  bool amsgrad = false;
  // Adadelta
  double rho = 0.9;

  template <typename Table>
  static void describe(Table& table) {
    using O = OptimizerOptions;
    using K = OptimizerKind;
    table.section("optimizer");
    table.add("optimizer", &O::kind, "which optimizer").at_the_end().kept();
    table.add("lr", &O::lr, "learning rate; -1: the optimizer's default")
        .between(0, kLarge)
        .or_unset(O::kUnset)
        .also({"--learning-rate"});
    table.add("weight_decay", &O::weight_decay, "-1: the optimizer's default")
        .between(0, kLarge)
        .or_unset(O::kUnset);
    table.add(
        "decay_bias_and_norm", &O::decay_bias_and_norm,
        "apply weight decay to biases and norms too, as PyTorch does");
    table.add("eps", &O::eps, "-1: the optimizer's default")
        .between(kTiny, kLarge)
        .or_unset(O::kUnset)
        .needs("optimizer", &O::kind, {K::adam, K::adamw, K::adadelta});
    // sgd has state with momentum only.
    table.add("momentum", &O::momentum, "share of the last step that goes on")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::sgd})
        .kept(ResumeRule::whether_default);
    table.add("dampening", &O::dampening, "share of the gradient kept from momentum")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::sgd});
    table.add("nesterov", &O::nesterov, "Nesterov's momentum")
        .needs("optimizer", &O::kind, {K::sgd});
    table.add("beta1", &O::beta1, "decay of the gradients' mean")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::adam, K::adamw});
    table.add("beta2", &O::beta2, "decay of the squares' mean")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::adam, K::adamw});
    table.add("amsgrad", &O::amsgrad, "divide by the largest mean of squares so far")
        .needs("optimizer", &O::kind, {K::adam, K::adamw})
        .kept();
    table.add("rho", &O::rho, "decay of the squares' mean")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::adadelta});
  }
};

}  // namespace tandem

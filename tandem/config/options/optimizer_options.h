#pragma once

#include <cstdint>
#include <string>

#include "tandem/config/options/setting.h"

namespace tandem {

/// Optimizers. All but lion and lamb have the update rules of torch.optim.
enum class OptimizerKind {
  sgd,
  adam,
  adamw,
  adadelta,
  adagrad,
  rmsprop,
  adamax,
  nadam,
  radam,
  lion,
  lamb,
  adafactor,
  muon
};

/// An optimizer and the defaults of its settings that can be unset.
struct OptimizerChoice {
  OptimizerKind value;
  const char* name;
  const char* help;
  double lr;
  double weight_decay;
  double eps;
  double beta2;
  // True if an update of a parameter depends on the whole tensor, for example on its
  // norm.
  bool needs_whole_tensors = false;
};
template <>
struct Choices<OptimizerKind> {
  static constexpr OptimizerChoice rows[] = {
      {OptimizerKind::sgd, "sgd",
       "stochastic gradient descent: momentum, dampening, nesterov", 1e-3, 0, 0, 0},
      {OptimizerKind::adam, "adam", "Adam: beta1, beta2, eps, amsgrad", 1e-3, 0, 1e-8,
       0.999},
      {OptimizerKind::adamw, "adamw",
       "Adam with decoupled weight decay: settings of adam", 1e-3, 1e-2, 1e-8, 0.999},
      {OptimizerKind::adadelta, "adadelta", "Adadelta: rho, eps", 1, 0, 1e-6, 0},
      {OptimizerKind::adagrad, "adagrad",
       "Adagrad: lr_decay, initial_accumulator_value, eps", 1e-2, 0, 1e-10, 0},
      {OptimizerKind::rmsprop, "rmsprop", "RMSprop: alpha, centered, momentum, eps",
       1e-2, 0, 1e-8, 0},
      {OptimizerKind::adamax, "adamax", "Adamax: beta1, beta2, eps", 2e-3, 0, 1e-8,
       0.999},
      {OptimizerKind::nadam, "nadam",
       "NAdam: beta1, beta2, eps, momentum_decay, decoupled_weight_decay", 2e-3, 0,
       1e-8, 0.999},
      {OptimizerKind::radam, "radam",
       "RAdam: beta1, beta2, eps, decoupled_weight_decay", 1e-3, 0, 1e-8, 0.999},
      {OptimizerKind::lion, "lion", "Lion: beta1, beta2; decoupled weight decay", 1e-4,
       0, 0, 0.99},
      {OptimizerKind::lamb, "lamb",
       "LAMB: beta1, beta2, eps; a trust ratio for each parameter tensor", 1e-3, 0,
       1e-6, 0.999, true},
      {OptimizerKind::adafactor, "adafactor",
       "Adafactor: beta2_decay, eps, eps2, update_clip; for matrices, state of one row "
       "and one column",
       1e-2, 0, 0, 0, true},
      {OptimizerKind::muon, "muon",
       "Muon for matrices: muon_momentum, ns_steps, match_rms_adamw; AdamW for the "
       "other parameters: beta1, beta2, eps",
       1e-3, 0.1, 1e-8, 0.999, true}};
};

/// Settings of all optimizers, with the same meanings as in PyTorch. The value kUnset
/// of `lr`, `weight_decay`, `eps` or `beta2` selects the optimizer's default in
/// Choices<OptimizerKind>.
struct OptimizerOptions {
  static constexpr double kUnset = -1;

  OptimizerKind kind = OptimizerKind::sgd;
  double lr = kUnset;
  double weight_decay = kUnset;
  // False: no weight decay for biases and the parameters of norms.
  bool decay_bias_and_norm = true;
  // Term that avoids division by 0. With adafactor, 0 is the machine epsilon of the
  // parameter's type.
  double eps = kUnset;
  // sgd and rmsprop.
  double momentum = 0;
  // sgd.
  double dampening = 0;
  bool nesterov = false;
  // Optimizers with a mean of gradients and, except adamax, of squared gradients. For
  // lion, beta1 is the weight of the mean in the update, and beta2 the decay rate of
  // the mean.
  double beta1 = 0.9;
  double beta2 = kUnset;
  // adam and adamw.
  bool amsgrad = false;
  // adadelta.
  double rho = 0.9;
  // adagrad.
  double lr_decay = 0;
  double initial_accumulator_value = 0;
  // rmsprop.
  double alpha = 0.99;
  bool centered = false;
  // nadam.
  double momentum_decay = 4e-3;
  // nadam and radam.
  bool decoupled_weight_decay = false;
  // adafactor: eps2 and update_clip are eps[1] and d of torch.optim.Adafactor.
  double beta2_decay = -0.8;
  double eps2 = 1e-3;
  double update_clip = 1;
  // muon: match_rms_adamw is adjust_lr_fn="match_rms_adamw" of torch.optim.Muon.
  double muon_momentum = 0.95;
  int64_t ns_steps = 5;
  bool match_rms_adamw = false;
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
        .needs(
            "optimizer", &O::kind,
            {K::adam, K::adamw, K::adadelta, K::adagrad, K::rmsprop, K::adamax,
             K::nadam, K::radam, K::lamb, K::adafactor, K::muon});
    // SGD and RMSprop have a momentum buffer only if momentum is not 0, so a resumed
    // run cannot turn momentum on or off.
    table.add("momentum", &O::momentum, "momentum factor")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::sgd, K::rmsprop})
        .kept(ResumeRule::whether_default);
    table.add("dampening", &O::dampening, "dampening of the gradient in SGD momentum")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::sgd});
    table.add("nesterov", &O::nesterov, "Nesterov momentum")
        .needs("optimizer", &O::kind, {K::sgd});
    table
        .add(
            "beta1", &O::beta1,
            "decay rate of the mean of gradients; for lion, weight of this mean in the "
            "update")
        .between(0, 1)
        .needs(
            "optimizer", &O::kind,
            {K::adam, K::adamw, K::adamax, K::nadam, K::radam, K::lion, K::lamb,
             K::muon});
    table
        .add(
            "beta2", &O::beta2,
            "decay rate of the mean of squared gradients; for lion, of the mean of "
            "gradients; for adamax, of the largest gradient; -1: the optimizer's "
            "default")
        .between(0, 1)
        .or_unset(O::kUnset)
        .formerly_unset(0.999)
        .needs(
            "optimizer", &O::kind,
            {K::adam, K::adamw, K::adamax, K::nadam, K::radam, K::lion, K::lamb,
             K::muon});
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
            "lr_decay", &O::lr_decay,
            "decay of the learning rate: step n, from 1, uses lr / (1 + (n - 1) * "
            "lr_decay)")
        .between(0, kLarge)
        .needs("optimizer", &O::kind, {K::adagrad});
    table
        .add(
            "initial_accumulator_value", &O::initial_accumulator_value,
            "value of the sums of squares at the start of the run")
        .between(0, kLarge)
        .needs("optimizer", &O::kind, {K::adagrad});
    table.add("alpha", &O::alpha, "decay rate of the mean of squares")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::rmsprop});
    table
        .add(
            "centered", &O::centered,
            "divide by the root of an estimate of the gradient's variance")
        .needs("optimizer", &O::kind, {K::rmsprop})
        .kept();
    table
        .add(
            "momentum_decay", &O::momentum_decay,
            "rate at which the momentum factor rises to beta1")
        .between(0, kLarge)
        .needs("optimizer", &O::kind, {K::nadam});
    table
        .add(
            "decoupled_weight_decay", &O::decoupled_weight_decay,
            "weight decay as in AdamW")
        .needs("optimizer", &O::kind, {K::nadam, K::radam});
    table
        .add(
            "beta2_decay", &O::beta2_decay,
            "exponent of the step number in the weight of a new squared gradient")
        .between(-kLarge, 0)
        .needs("optimizer", &O::kind, {K::adafactor});
    table
        .add(
            "eps2", &O::eps2,
            "smallest root mean square of a parameter in the size of its update")
        .between(0, kLarge)
        .needs("optimizer", &O::kind, {K::adafactor});
    table
        .add(
            "update_clip", &O::update_clip,
            "largest root mean square of an update before it is multiplied by its size")
        .between(1, kLarge)
        .needs("optimizer", &O::kind, {K::adafactor});
    table
        .add("muon_momentum", &O::muon_momentum, "Nesterov momentum factor of matrices")
        .between(0, 1)
        .needs("optimizer", &O::kind, {K::muon});
    table
        .add(
            "ns_steps", &O::ns_steps,
            "Newton-Schulz iterations that make an update orthogonal")
        .between(1, 99)
        .needs("optimizer", &O::kind, {K::muon});
    table
        .add(
            "match_rms_adamw", &O::match_rms_adamw,
            "updates of matrices have the root mean square of AdamW's updates")
        .needs("optimizer", &O::kind, {K::muon});
    table
        .add(
            "ema_decay", &O::ema_decay,
            "decay of the moving average of the weights, 0 to 1; 0: no average")
        .between(0, 1)
        .kept(ResumeRule::whether_default);
  }
};

}  // namespace tandem

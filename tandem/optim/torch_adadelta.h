#pragma once

#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include <utility>
#include <vector>

namespace tandem {

/// Options of a parameter group of Adadelta, with PyTorch's defaults.
struct AdadeltaOptions
    : public torch::optim::OptimizerCloneableOptions<AdadeltaOptions> {
  // Not explicit, as in LibTorch's optimizers: Adadelta(parameters, 0.5).
  AdadeltaOptions(double lr = 1.0);  // NOLINT(google-explicit-constructor)

  // Factor of the updates.
  TORCH_ARG(double, lr);
  // Decay of the running averages per step.
  TORCH_ARG(double, rho) = 0.9;
  // Term that is added to the averages before the square root.
  TORCH_ARG(double, eps) = 1e-6;
  // Factor of the parameter that is added to its gradient.
  TORCH_ARG(double, weight_decay) = 0;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override;
  void set_lr(double lr) override;
};

/// State of a parameter in Adadelta: number of steps, and running averages of squared
/// gradients and squared updates, in the shape of the parameter.
struct AdadeltaParamState
    : public torch::optim::OptimizerCloneableParamState<AdadeltaParamState> {
  TORCH_ARG(int64_t, step) = 0;
  TORCH_ARG(torch::Tensor, square_avg);
  TORCH_ARG(torch::Tensor, acc_delta);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

/// The Adadelta optimizer for loops with torch::optim, which has no Adadelta. It
/// computes the same operations as torch.optim.Adadelta, in the same order.
///
///   tandem::Adadelta optimizer(net->parameters(),
///                              tandem::AdadeltaOptions().rho(0.95));
///
/// Gradients must be dense. Parameters without a gradient do not change. tandem.h does
/// not include this header, because it needs LibTorch's optimizers.
///
/// Source: Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012.
class Adadelta : public torch::optim::Optimizer {
 public:
  /// Throws ConfigError for a negative lr, eps or weight decay, or rho outside of 0
  /// to 1.
  explicit Adadelta(
      std::vector<torch::optim::OptimizerParamGroup> groups,
      const AdadeltaOptions& defaults = {});
  explicit Adadelta(
      std::vector<torch::Tensor> parameters, const AdadeltaOptions& defaults = {});

  /// Adds a group of parameters. Without options, the group gets the defaults.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  torch::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void update(const torch::Tensor& parameter, const AdadeltaOptions& options);
};

}  // namespace tandem

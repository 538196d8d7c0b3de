#include "tandem/optim/torch_adadelta.h"

#include <ATen/Functions.h>
#include <torch/optim/serialize.h>

#include <string>

#include "tandem/base/error.h"
#include "tandem/optim/optimizer_state.h"

namespace tandem {

namespace {

void check_range(const char* name, double value, double least, double most) {
  if (!(value >= least && value <= most)) {
    throw ConfigError(
        std::string("[adadelta] ") + name + " is " + std::to_string(value) +
        ", expected " + (most < 2 ? "a number from 0 to 1" : "0 or more") +
        "; change it");
  }
}

AdadeltaOptions checked(const AdadeltaOptions& options) {
  constexpr double kMost = 1e300;
  check_range("lr", options.lr(), 0, kMost);
  check_range("rho", options.rho(), 0, 1);
  check_range("eps", options.eps(), 0, kMost);
  check_range("weight_decay", options.weight_decay(), 0, kMost);
  return options;
}

}  // namespace

AdadeltaOptions::AdadeltaOptions(double lr) : lr_(lr) {}

void AdadeltaOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(rho);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
}

void AdadeltaOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, rho);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
}

double AdadeltaOptions::get_lr() const {
  return lr();
}

void AdadeltaOptions::set_lr(double lr) {
  lr_ = lr;
}

void AdadeltaParamState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(square_avg);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(acc_delta);
}

void AdadeltaParamState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(int64_t, step);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, square_avg);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, acc_delta);
}

Adadelta::Adadelta(
    std::vector<torch::optim::OptimizerParamGroup> groups,
    const AdadeltaOptions& defaults)
    : Optimizer(
          std::vector<torch::optim::OptimizerParamGroup>(),
          std::make_unique<AdadeltaOptions>(checked(defaults))) {
  for (const auto& group : groups) {
    add_param_group(group);
  }
}

Adadelta::Adadelta(
    std::vector<torch::Tensor> parameters, const AdadeltaOptions& defaults)
    : Adadelta(
          std::vector<torch::optim::OptimizerParamGroup>{
              torch::optim::OptimizerParamGroup(std::move(parameters))},
          defaults) {}

void Adadelta::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  if (group.has_options()) {
    checked(dynamic_cast<const AdadeltaOptions&>(group.options()));
  }
  Optimizer::add_param_group(group);
  if (group.has_options()) {
    // LibTorch 2.15 replaces the options by the defaults, except for its own
    // optimizers.
    param_groups_.back().set_options(group.options().clone());
  }
}

torch::Tensor Adadelta::step(LossClosure closure) {
  const torch::NoGradGuard no_grad;
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  for (auto& group : param_groups_) {
    const auto& options = dynamic_cast<const AdadeltaOptions&>(group.options());
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) {
        update(parameter, options);
      }
    }
  }
  return loss;
}

void Adadelta::update(const torch::Tensor& parameter, const AdadeltaOptions& options) {
  torch::Tensor grad = parameter.grad();
  if (grad.is_sparse()) {
    throw ConfigError(
        "[adadelta] a gradient is sparse, expected a dense one; use a dense embedding");
  }
  auto& entry = state_[state_key(parameter)];
  if (entry == nullptr) {
    auto fresh = std::make_unique<AdadeltaParamState>();
    fresh->square_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    fresh->acc_delta(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    entry = std::move(fresh);
  }
  auto& state = dynamic_cast<AdadeltaParamState&>(*entry);
  state.step(state.step() + 1);
  if (options.weight_decay() != 0) {
    grad = grad.add(parameter, options.weight_decay());
  }
  const double rho = options.rho();
  state.square_avg().mul_(rho).addcmul_(grad, grad, 1 - rho);
  const auto std = state.square_avg().add(options.eps()).sqrt_();
  const auto delta = state.acc_delta().add(options.eps()).sqrt_().div_(std).mul_(grad);
  state.acc_delta().mul_(rho).addcmul_(delta, delta, 1 - rho);
  parameter.add_(delta, -options.lr());
}

void Adadelta::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<AdadeltaParamState, AdadeltaOptions>(archive, *this);
}

void Adadelta::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<AdadeltaParamState, AdadeltaOptions>(archive, *this);
}

}  // namespace tandem

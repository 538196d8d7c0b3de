#include "tandem/optim/torch_optim.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <type_traits>

#include "tandem/base/error.h"
#include "tandem/optim/algorithm.h"
#include "tandem/optim/group_settings.h"
#include "tandem/optim/optimizer_state.h"

namespace tandem {

namespace {

const OptimizerOptions& settings_of(const torch::optim::OptimizerOptions& options) {
  return dynamic_cast<const LoopSettings&>(options).settings();
}

void check(const torch::optim::OptimizerOptions& options, OptimizerKind kind) {
  const auto& settings = settings_of(options);
  if (settings.kind != kind) {
    throw ConfigError(
        std::string("[") + name_of(kind) + "] a parameter group has options of " +
        name_of(settings.kind) + ", expected " + name_of(kind) +
        "; change the options");
  }
  check_group_settings(settings);
  static_cast<void>(make_algorithm(settings));
}

// Returns whether the settings that an Algorithm keeps are equal.
bool equal_rules(const OptimizerOptions& a, const OptimizerOptions& b) {
  const auto& settings = group_settings(a.kind);
  return std::all_of(settings.begin(), settings.end(), [&](const auto& setting) {
    return setting.name == "lr" || setting.name == "weight_decay" ||
           std::visit(
               [&](auto member) { return a.*member == b.*member; }, setting.member);
  });
}

}  // namespace

LoopSettings::LoopSettings(OptimizerKind kind, double lr) {
  settings_.kind = kind;
  settings_ = with_defaults(settings_);
  settings_.lr = lr;
}

void LoopSettings::save_settings(torch::serialize::OutputArchive& archive) const {
  visit_settings(settings_, [&](const std::string& name, auto value) {
    archive.write(name, c10::IValue(value));
  });
}

void LoopSettings::load_settings(torch::serialize::InputArchive& archive) {
  visit_settings(settings_, [&](const std::string& name, auto& value) {
    c10::IValue saved;
    archive.read(name, saved);
    value = saved.to<std::decay_t<decltype(value)>>();
  });
}

LoopState::LoopState(const Algorithm& algorithm) {
  for (const auto& name : algorithm.state_names()) {
    tensors.push_back({name, {}});
  }
}

void LoopState::serialize(torch::serialize::OutputArchive& archive) const {
  archive.write("step", c10::IValue(step));
  for (const auto& [name, tensor] : tensors) {
    if (tensor.defined()) {
      archive.write(name, tensor, true);
    }
  }
}

void LoopState::serialize(torch::serialize::InputArchive& archive) {
  for (const auto& name : archive.keys()) {
    if (name == "step") {
      c10::IValue saved;
      archive.read(name, saved);
      step = saved.toInt();
    } else {
      tensors.push_back({name, {}});
      archive.read(name, tensors.back().tensor, true);
    }
  }
}

LoopOptimizer::LoopOptimizer(
    const std::vector<torch::optim::OptimizerParamGroup>& groups, OptimizerKind kind,
    std::unique_ptr<torch::optim::OptimizerOptions> defaults)
    : Optimizer(std::vector<torch::optim::OptimizerParamGroup>(), std::move(defaults)),
      kind_(kind) {
  check(*defaults_, kind_);
  for (const auto& group : groups) {
    add_param_group(group);
  }
}

LoopOptimizer::~LoopOptimizer() = default;

void LoopOptimizer::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  if (group.has_options()) {
    check(group.options(), kind_);
  }
  Optimizer::add_param_group(group);
  if (group.has_options()) {
    // LibTorch 2.15 replaces the options by the defaults, except for its own
    // optimizers.
    param_groups_.back().set_options(group.options().clone());
  }
}

torch::Tensor LoopOptimizer::step(LossClosure closure) {
  const torch::NoGradGuard no_grad;
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  for (size_t i = 0; i < param_groups_.size(); ++i) {
    const auto& options = settings_of(param_groups_[i].options());
    Algorithm& algorithm = algorithm_of(i, options);
    for (const auto& parameter : param_groups_[i].params()) {
      if (parameter.grad().defined()) {
        update(parameter, algorithm, options);
      }
    }
  }
  return loss;
}

// A program may change options between steps.
Algorithm& LoopOptimizer::algorithm_of(size_t group, const OptimizerOptions& options) {
  algorithms_.resize(param_groups_.size());
  auto& [used, algorithm] = algorithms_[group];
  if (algorithm == nullptr || !equal_rules(used, options)) {
    check_group_settings(options);
    algorithm = make_algorithm(options);
    used = options;
  }
  return *algorithm;
}

LoopState& LoopOptimizer::state_of(
    const torch::Tensor& parameter, const Algorithm& algorithm) {
  auto& entry = state_[state_key(parameter)];
  if (entry == nullptr) {
    auto fresh = std::make_unique<LoopState>(algorithm);
    const auto sizes = parameter.sizes().vec();
    for (size_t i = 0; i < fresh->tensors.size(); ++i) {
      if (const auto dims = algorithm.state_dims(i, sizes)) {
        auto& tensor = fresh->tensors[i].tensor;
        tensor = *dims == sizes
                     ? at::zeros_like(parameter, at::MemoryFormat::Preserve)
                     : at::zeros(*dims, parameter.options().requires_grad(false));
        tensor.fill_(algorithm.initial_state());
      }
    }
    entry = std::move(fresh);
  }
  return dynamic_cast<LoopState&>(*entry);
}

void LoopOptimizer::update(
    const torch::Tensor& parameter, Algorithm& algorithm,
    const OptimizerOptions& options) {
  const torch::Tensor grad = parameter.grad();
  if (grad.is_sparse()) {
    throw ConfigError(
        std::string("[") + name_of(kind_) +
        "] a gradient is sparse, expected a dense one; use a dense embedding");
  }
  LoopState& state = state_of(parameter, algorithm);
  UpdateTensors tensors{parameter, grad, {}};
  for (const auto& name : algorithm.state_names()) {
    const auto found = std::find_if(
        state.tensors.begin(), state.tensors.end(),
        [&](const NamedTensor& entry) { return entry.name == name; });
    tensors.states.push_back(
        found == state.tensors.end() ? at::Tensor() : found->tensor);
  }
  ++state.step;
  update_parameter(
      algorithm, row_of(kind_).needs_whole_tensors, tensors,
      {options.lr, options.weight_decay, 1, state.step});
  // Autograd then detects that a graph of the old values is no longer valid.
  parameter.unsafeGetTensorImpl()->bump_version();
}

}  // namespace tandem

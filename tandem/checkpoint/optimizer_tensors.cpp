#include "tandem/checkpoint/optimizer_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/optim/algorithm.h"
#include "tandem/optim/group_settings.h"
#include "tandem/optim/optimizer_state.h"
#include "tandem/optim/torch_optim.h"
#include "tandem/parallel/ddp/sharded_optimizer.h"

namespace tandem {

namespace {

// Passes the fields of a struct, as tensors, to a function that saves or loads them.
class Fields {
 public:
  // Saves `tensor`, or replaces it by the loaded tensor. An undefined tensor is a field
  // without a value, which a required field cannot be.
  using Exchange =
      std::function<void(const std::string& name, at::Tensor& tensor, bool required)>;

  explicit Fields(Exchange exchange) : exchange_(std::move(exchange)) {}

  template <typename Number, std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
  void operator()(const std::string& name, Number& value) {
    at::Tensor tensor = at::full({}, value, c10::CppTypeToScalarType<Number>::value);
    exchange_(name, tensor, true);
    value = tensor.item<Number>();
  }
  void operator()(const std::string& name, std::tuple<double, double>& pair) {
    (*this)(name + ".0", std::get<0>(pair));
    (*this)(name + ".1", std::get<1>(pair));
  }
  void operator()(const std::string& name, c10::optional<int64_t>& value) {
    at::Tensor tensor = value ? at::full({}, *value, at::kLong) : at::Tensor();
    exchange_(name, tensor, false);
    value = c10::nullopt;
    if (tensor.defined()) {
      value = tensor.item<int64_t>();
    }
  }
  void operator()(const std::string& name, c10::optional<std::string>& value) {
    at::Tensor tensor;
    if (value) {
      tensor = at::empty({static_cast<int64_t>(value->size())}, at::kByte);
      std::memcpy(tensor.data_ptr(), value->data(), value->size());
    }
    exchange_(name, tensor, false);
    value = c10::nullopt;
    if (tensor.defined()) {
      value = std::string(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
    }
  }
  void operator()(const std::string& name, at::Tensor& tensor) {
    exchange_(name, tensor, false);
  }
  void operator()(const std::string& name, std::deque<at::Tensor>& list) {
    for (size_t i = 0;; ++i) {
      at::Tensor tensor = i < list.size() ? list[i] : at::Tensor();
      exchange_(name + "." + std::to_string(i), tensor, false);
      if (!tensor.defined()) {
        return;
      }
      list.resize(std::max(list.size(), i + 1));
      list[i] = tensor;
    }
  }

 private:
  Exchange exchange_;
};

// --- the fields of LibTorch's optimizers ---

void list(torch::optim::SGDOptions& options, Fields& field) {
  field("lr", options.lr());
  field("momentum", options.momentum());
  field("dampening", options.dampening());
  field("weight_decay", options.weight_decay());
  field("nesterov", options.nesterov());
}

void list(torch::optim::SGDParamState& state, Fields& field) {
  field("momentum_buffer", state.momentum_buffer());
}

template <typename Options>
void list_adam_options(Options& options, Fields& field) {
  field("lr", options.lr());
  field("betas", options.betas());
  field("eps", options.eps());
  field("weight_decay", options.weight_decay());
  field("amsgrad", options.amsgrad());
}

template <typename State>
void list_adam_state(State& state, Fields& field) {
  field("step", state.step());
  field("exp_avg", state.exp_avg());
  field("exp_avg_sq", state.exp_avg_sq());
  field("max_exp_avg_sq", state.max_exp_avg_sq());
}

void list(torch::optim::AdamOptions& options, Fields& field) {
  list_adam_options(options, field);
}

void list(torch::optim::AdamParamState& state, Fields& field) {
  list_adam_state(state, field);
}

void list(torch::optim::AdamWOptions& options, Fields& field) {
  list_adam_options(options, field);
}

void list(torch::optim::AdamWParamState& state, Fields& field) {
  list_adam_state(state, field);
}

void list(torch::optim::AdagradOptions& options, Fields& field) {
  field("lr", options.lr());
  field("lr_decay", options.lr_decay());
  field("weight_decay", options.weight_decay());
  field("initial_accumulator_value", options.initial_accumulator_value());
  field("eps", options.eps());
}

void list(torch::optim::AdagradParamState& state, Fields& field) {
  field("step", state.step());
  field("sum", state.sum());
}

void list(torch::optim::RMSpropOptions& options, Fields& field) {
  field("lr", options.lr());
  field("alpha", options.alpha());
  field("eps", options.eps());
  field("weight_decay", options.weight_decay());
  field("momentum", options.momentum());
  field("centered", options.centered());
}

void list(torch::optim::RMSpropParamState& state, Fields& field) {
  field("step", state.step());
  field("square_avg", state.square_avg());
  field("momentum_buffer", state.momentum_buffer());
  field("grad_avg", state.grad_avg());
}

void list(torch::optim::LBFGSOptions& options, Fields& field) {
  field("lr", options.lr());
  field("max_iter", options.max_iter());
  field("max_eval", options.max_eval());
  field("tolerance_grad", options.tolerance_grad());
  field("tolerance_change", options.tolerance_change());
  field("history_size", options.history_size());
  field("line_search_fn", options.line_search_fn());
}

// Leaves out `al`, which every step computes again before it reads it.
void list(torch::optim::LBFGSParamState& state, Fields& field) {
  field("func_evals", state.func_evals());
  field("n_iter", state.n_iter());
  field("t", state.t());
  field("prev_loss", state.prev_loss());
  field("d", state.d());
  field("H_diag", state.H_diag());
  field("prev_flat_grad", state.prev_flat_grad());
  field("old_dirs", state.old_dirs());
  field("old_stps", state.old_stps());
  field("ro", state.ro());
}

void list(LoopSettings& options, Fields& field) {
  visit_settings(options.settings(), field);
}

void list(LoopState& state, Fields& field) {
  field("step", state.step);
  for (auto& [name, tensor] : state.tensors) {
    field(name, tensor);
  }
}

// A class of optimizers. An optimizer of a derived class does not match, because it may
// have more state.
struct Kind {
  const char* name;
  const std::type_info* type;
  void (*list_options)(torch::optim::OptimizerOptions& options, Fields& field);
  void (*list_state)(torch::optim::OptimizerParamState& state, Fields& field);
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)();
};

template <typename Class, typename Options, typename State>
Kind kind(const char* name) {
  return {
      name, &typeid(Class),
      [](torch::optim::OptimizerOptions& options, Fields& field) {
        list(dynamic_cast<Options&>(options), field);
      },
      [](torch::optim::OptimizerParamState& state, Fields& field) {
        list(dynamic_cast<State&>(state), field);
      },
      []() -> std::unique_ptr<torch::optim::OptimizerParamState> {
        return std::make_unique<State>();
      }};
}

// A class of tandem/optim/torch_optim.h.
template <typename Options>
Kind loop_kind(const char* name) {
  Kind entry = kind<LoopOptimizerOf<Options>, Options, LoopState>(name);
  entry.make_state = []() -> std::unique_ptr<torch::optim::OptimizerParamState> {
    return std::make_unique<LoopState>(*make_algorithm(Options().settings()));
  };
  return entry;
}

const std::vector<Kind>& kinds() {
  namespace optim = torch::optim;
  static const std::vector<Kind> all = {
      kind<optim::SGD, optim::SGDOptions, optim::SGDParamState>("SGD"),
      kind<optim::Adam, optim::AdamOptions, optim::AdamParamState>("Adam"),
      kind<optim::AdamW, optim::AdamWOptions, optim::AdamWParamState>("AdamW"),
      kind<optim::Adagrad, optim::AdagradOptions, optim::AdagradParamState>("Adagrad"),
      kind<optim::RMSprop, optim::RMSpropOptions, optim::RMSpropParamState>("RMSprop"),
      loop_kind<AdadeltaOptions>("Adadelta"),
      loop_kind<AdafactorOptions>("Adafactor"),
      loop_kind<AdamaxOptions>("Adamax"),
      loop_kind<LambOptions>("Lamb"),
      loop_kind<LionOptions>("Lion"),
      loop_kind<MuonOptions>("Muon"),
      loop_kind<NAdamOptions>("NAdam"),
      loop_kind<RAdamOptions>("RAdam"),
      kind<optim::LBFGS, optim::LBFGSOptions, optim::LBFGSParamState>("LBFGS"),
  };
  return all;
}

const std::type_info& class_of(const torch::optim::Optimizer& optimizer) {
  const auto* const sharded = dynamic_cast<const ShardedOptimizerBase*>(&optimizer);
  return sharded == nullptr ? typeid(optimizer) : sharded->class_of_optimizer();
}

const Kind& kind_of(const torch::optim::Optimizer& optimizer) {
  std::vector<std::string> names;
  for (const auto& entry : kinds()) {
    if (class_of(optimizer) == *entry.type) {
      return entry;
    }
    names.emplace_back(entry.name);
  }
  throw ConfigError(
      "[checkpoint] the class of the optimizer is unknown, expected one of " +
      join(names) + "; use one of them, or save the optimizer yourself");
}

// --- names and keys ---

constexpr const char* kGroup = "group.";

std::string option_name(size_t group, const std::string& option) {
  return kGroup + std::to_string(group) + "/" + option;
}

std::string state_name(const std::string& field, const std::string& parameter) {
  return field + "/" + parameter;
}

// Names of parameters by their identity. A tensor with several names (tied weights) has
// its first name here.
using Names = std::map<const at::TensorImpl*, std::string>;

Names names_of(const std::vector<NamedTensor>& parameters) {
  Names names;
  for (const auto& [name, tensor] : parameters) {
    names.emplace(tensor.unsafeGetTensorImpl(), name);
  }
  return names;
}

const std::string& name_in(const Names& names, const at::Tensor& parameter) {
  const auto found = names.find(parameter.unsafeGetTensorImpl());
  if (found == names.end()) {
    throw ConfigError(
        "[checkpoint] the optimizer has a parameter that is not in the module, "
        "expected "
        "only the module's parameters; register it in the module");
  }
  return found->second;
}

// The tensors of a file. find() returns each tensor only once.
class Tensors {
 public:
  Tensors(const std::vector<NamedTensor>& tensors, const std::string& path)
      : path_(path) {
    for (const auto& [name, tensor] : tensors) {
      left_.emplace(name, tensor);
      owners_.insert(parameter_of_state(name));
    }
  }

  // Returns whether any state of a parameter is in the file.
  bool has_state_of(const std::string& parameter) const {
    return owners_.count(parameter) > 0;
  }

  at::Tensor find(const std::string& name, bool required) {
    const auto found = left_.find(name);
    if (found == left_.end()) {
      if (required) {
        fail("has no '" + name + "'");
      }
      return {};
    }
    const at::Tensor tensor = found->second;
    left_.erase(found);
    return tensor;
  }

  void check_all_found() const {
    if (!left_.empty()) {
      fail("has '" + left_.begin()->first + "', which the optimizer does not have");
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(
        "[checkpoint] '" + path_ + "' " + what +
        "; it belongs to another model or optimizer, construct the same ones");
  }

  const std::string& path_;
  std::map<std::string, at::Tensor> left_;
  std::set<std::string> owners_;
};

}  // namespace

std::string parameter_of_state(const std::string& name) {
  const size_t slash = name.find('/');
  return slash == std::string::npos || name.rfind(kGroup, 0) == 0
             ? ""
             : name.substr(slash + 1);
}

std::string optimizer_name(const torch::optim::Optimizer& optimizer) {
  return kind_of(optimizer).name;
}

std::vector<NamedTensor> optimizer_tensors(
    torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters) {
  const Kind& kind = kind_of(optimizer);
  const Names names = names_of(parameters);
  std::vector<NamedTensor> tensors;
  const auto save = [&](const std::string& name, const at::Tensor& tensor) {
    if (tensor.defined()) {
      tensors.push_back({name, tensor});
    }
  };
  auto& groups = optimizer.param_groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    Fields options([&](const std::string& name, at::Tensor& tensor, bool) {
      save(option_name(i, name), tensor);
    });
    kind.list_options(groups[i].options(), options);
    for (const auto& parameter : groups[i].params()) {
      const std::string& owner = name_in(names, parameter);
      Fields fields([&](const std::string& name, at::Tensor& tensor, bool) {
        save(state_name(name, owner), tensor);
      });
      const auto found = optimizer.state().find(state_key(parameter));
      if (found != optimizer.state().end()) {
        kind.list_state(*found->second, fields);
      }
    }
  }
  return tensors;
}

std::function<void()> read_optimizer(
    torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters,
    const std::vector<NamedTensor>& tensors, const std::string& path) {
  const Kind& kind = kind_of(optimizer);
  const Names names = names_of(parameters);
  Tensors file(tensors, path);
  auto& groups = optimizer.param_groups();
  // Options of each parameter group. Shared, because a std::function can be copied.
  const auto group_options =
      std::make_shared<std::vector<std::unique_ptr<torch::optim::OptimizerOptions>>>();
  const auto states = std::make_shared<OptimizerStateMap>();
  for (size_t i = 0; i < groups.size(); ++i) {
    Fields options([&](const std::string& name, at::Tensor& tensor, bool required) {
      tensor = file.find(option_name(i, name), required);
    });
    group_options->push_back(groups[i].options().clone());
    kind.list_options(*group_options->back(), options);
    for (const auto& parameter : groups[i].params()) {
      const std::string& owner = name_in(names, parameter);
      if (!file.has_state_of(owner)) {
        continue;
      }
      Fields fields([&](const std::string& name, at::Tensor& tensor, bool required) {
        tensor = file.find(state_name(name, owner), required);
        if (tensor.defined()) {
          tensor = tensor.to(parameter.device());
        }
      });
      auto state = kind.make_state();
      kind.list_state(*state, fields);
      (*states)[state_key(parameter)] = std::move(state);
    }
  }
  file.check_all_found();
  return [&optimizer, &groups, group_options, states] {
    for (size_t i = 0; i < groups.size(); ++i) {
      groups[i].set_options(std::move((*group_options)[i]));
    }
    optimizer.state() = std::move(*states);
  };
}

}  // namespace tandem

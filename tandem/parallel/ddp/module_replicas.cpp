#include "tandem/parallel/ddp/module_replicas.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {

namespace {

namespace autograd = torch::autograd;

// The gradients of one parameter's replicas, by their number; undefined where a
// replica did not use it.
struct AddInOrder : autograd::Node {
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    at::Tensor sum;
    for (const auto& gradient : gradients) {
      if (gradient.defined()) {
        sum = sum.defined() ? sum + gradient : gradient;
      }
    }
    return {sum};
  }
};

// A module's reset(), which clone() calls, draws new weights.
class KeepRandomNumbers {
 public:
  KeepRandomNumbers() : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~KeepRandomNumbers() {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_state(state_);
  }
  KeepRandomNumbers(const KeepRandomNumbers&) = delete;
  KeepRandomNumbers& operator=(const KeepRandomNumbers&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

std::vector<at::Tensor> tensors_of(
    const torch::OrderedDict<std::string, at::Tensor>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& entry : named) {
    if (entry.value().defined()) {
      tensors.push_back(entry.value());
    }
  }
  return tensors;
}

bool are_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](auto& x, auto& y) {
    return x.is_same(y);
  });
}

size_t checked_count(int64_t count) {
  if (count < 1) {
    throw ConfigError(
        "[data_parallel] there cannot be " + std::to_string(count) +
        " replicas; ask for 1 or more");
  }
  return static_cast<size_t>(count);
}

void check_in_main_memory(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (!tensor.is_cpu()) {
      throw ConfigError(
          "[data_parallel] the module is on " + tensor.device().str() +
          ", and replicas are threads of the CPU; move it there, or use "
          "torch::nn::parallel::data_parallel");
    }
  }
}

std::shared_ptr<torch::nn::Module> clone_of(const torch::nn::Module& module) {
  try {
    return module.clone();
  } catch (const c10::Error& error) {
    throw ConfigError(
        "[data_parallel] the module cannot be cloned (" + first_line(error) +
        "); derive it from torch::nn::Cloneable, or give DataParallel a function that "
        "makes another one");
  }
}

// The memory that a tensor has from now on is `data`, its place in autograd's graph
// that of a leaf. Changes of the original in place are seen in a backward as it sees
// them.
void become(
    const at::Tensor& tensor, const at::Tensor& data, const at::Tensor& original) {
  autograd::impl::set_gradient_edge(tensor, {});
  tensor.set_requires_grad(false);
  tensor.set_data(data);
  if (data.is_same(original)) {
    autograd::impl::set_version_counter(
        tensor, autograd::impl::version_counter(original));
  }
  tensor.set_requires_grad(original.requires_grad());
}

// Newer LibTorch counts references inside the node.
using NodePointer = decltype(autograd::Edge::function);

template <typename T>
NodePointer make_node() {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<autograd::Node>>) {
    return std::make_shared<T>();
  } else {
    return c10::make_intrusive<T>();
  }
}

// One for all replicas of a tensor; null where it wants no gradient. Without grad mode
// too: a backward that is still to come wants to see that the tensors are no leaves.
NodePointer sum_for(const at::Tensor& original) {
  if (!original.requires_grad()) {
    return {};
  }
  auto sum = make_node<AddInOrder>();
  sum->set_next_edges(autograd::collect_next_edges(original));
  return sum;
}

void lead_to(const NodePointer& sum, at::Tensor& tensor) {
  if (sum) {
    autograd::set_history(tensor, sum);
  }
}

}  // namespace

ModuleReplicas::ModuleReplicas(
    std::shared_ptr<torch::nn::Module> module, int64_t count, MakeModule make)
    : module_(std::move(module)),
      make_(std::move(make)),
      count_(checked_count(count)),
      threads_(count_) {
  remake();
}

ModuleReplicas::Replica ModuleReplicas::make_replica() const {
  Replica replica;
  replica.module = make_ ? make_() : clone_of(*module_);
  if (replica.module == nullptr) {
    throw ConfigError(
        "[data_parallel] the function that makes a replica gave none; return a module");
  }
  replica.parameters = tensors_of(replica.module->named_parameters());
  replica.buffers = tensors_of(replica.module->named_buffers());
  if (replica.parameters.size() != parameters_.size() ||
      replica.buffers.size() != buffers_.size() ||
      replica.module->modules().size() != module_->modules().size()) {
    throw ConfigError(
        "[data_parallel] a replica has " + std::to_string(replica.parameters.size()) +
        " parameters and " + std::to_string(replica.buffers.size()) +
        " buffers, the module " + std::to_string(parameters_.size()) + " and " +
        std::to_string(buffers_.size()) + "; make both alike");
  }
  return replica;
}

void ModuleReplicas::remake() {
  const KeepRandomNumbers scope;
  const c10::InferenceMode off(false);
  parameters_ = tensors_of(module_->named_parameters());
  buffers_ = tensors_of(module_->named_buffers());
  replicas_.clear();
  while (replicas_.size() < count_) {
    replicas_.push_back(make_replica());
  }
}

bool ModuleReplicas::is_as_made() const {
  return are_same(parameters_, tensors_of(module_->named_parameters())) &&
         are_same(buffers_, tensors_of(module_->named_buffers()));
}

void ModuleReplicas::run(size_t count, const std::function<void(size_t)>& work) {
  const std::unique_lock<std::mutex> alone(running_, std::try_to_lock);
  if (!alone) {
    throw ConfigError(
        "[data_parallel] a forward was called while another one was on its way; call "
        "one at a time, and not from within the module");
  }
  if (!is_as_made()) {
    remake();
  }
  check_in_main_memory(parameters_);
  check_in_main_memory(buffers_);
  {
    const c10::InferenceMode off(false);
    share_parameters(count);
    share_buffers(count);
  }
  follow_training_mode(count);
  threads_.run(count, work);
}

void ModuleReplicas::share_parameters(size_t count) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto sum = sum_for(parameters_[i]);
    for (size_t replica = 0; replica < count; ++replica) {
      auto& parameter = replicas_[replica].parameters[i];
      become(parameter, parameters_[i], parameters_[i]);
      lead_to(sum, parameter);
    }
  }
}

// Replica 0 writes into the module's own, the others into copies.
void ModuleReplicas::share_buffers(size_t count) {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const auto sum = sum_for(buffers_[i]);
    for (size_t replica = 0; replica < count; ++replica) {
      auto& buffer = replicas_[replica].buffers[i];
      const auto data = replica == 0 ? buffers_[i] : buffers_[i].detach().clone();
      become(buffer, data, buffers_[i]);
      lead_to(sum, buffer);
    }
  }
}

void ModuleReplicas::follow_training_mode(size_t count) {
  const auto originals = module_->modules();
  for (size_t replica = 0; replica < count; ++replica) {
    const auto copies = replicas_[replica].module->modules();
    // train() reaches all below a module, which come behind it.
    for (size_t i = 0; i < copies.size(); ++i) {
      if (copies[i]->is_training() != originals[i]->is_training()) {
        copies[i]->train(originals[i]->is_training());
      }
    }
  }
}

}  // namespace tandem

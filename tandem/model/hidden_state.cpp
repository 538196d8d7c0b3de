#include "tandem/model/hidden_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>

#include "tandem/base/log.h"

namespace tandem {

namespace {

using AutogradNode = torch::autograd::Node;

constexpr const char* kFix =
    "; use make_module_model(), or give make_function_model() ";

struct BatchNorms {
  // One running mean per batch norm layer that has running statistics.
  std::vector<at::Tensor> running_means;
  bool in_training_mode = false;
};

template <typename Kind>
void add_batch_norm(const AutogradNode& node, BatchNorms& found) {
  if (const auto* norm = dynamic_cast<const Kind*>(&node)) {
    const at::Tensor running_mean = norm->running_mean_.unpack();
    if (running_mean.defined()) {
      found.running_means.push_back(running_mean);
      found.in_training_mode = found.in_training_mode || norm->training;
    }
  }
}

BatchNorms batch_norms_of(const at::Tensor& output) {
  BatchNorms found;
  std::unordered_set<const AutogradNode*> seen;
  std::vector<const AutogradNode*> waiting = {output.grad_fn().get()};
  while (!waiting.empty()) {
    const AutogradNode* node = waiting.back();
    waiting.pop_back();
    if (node == nullptr || !seen.insert(node).second) {
      continue;
    }
    add_batch_norm<torch::autograd::generated::NativeBatchNormBackward0>(*node, found);
    add_batch_norm<torch::autograd::generated::CudnnBatchNormBackward0>(*node, found);
    for (const auto& edge : node->next_edges()) {
      waiting.push_back(edge.function.get());
    }
  }
  return found;
}

// Returns bytes, whose comparison is no operator that a recording would contain.
std::string random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  return {
      reinterpret_cast<const char*>(state.data_ptr<uint8_t>()),
      static_cast<size_t>(state.numel())};
}

}  // namespace

bool HiddenState::names(const at::Tensor& buffer) const {
  return std::any_of(buffers_.begin(), buffers_.end(), [&](const auto& known) {
    return known.tensor.data_ptr() == buffer.data_ptr();
  });
}

void HiddenState::check_graph(const at::Tensor& output) const {
  const BatchNorms norms = batch_norms_of(output);
  const auto hidden = std::count_if(
      norms.running_means.begin(), norms.running_means.end(),
      [&](const auto& mean) { return !names(mean); });
  if (hidden > 0) {
    log_warning(
        "[model] checkpoints and exports lack batch norm's running statistics: the "
        "model does not name those of " +
        std::to_string(hidden) + " of " + std::to_string(norms.running_means.size()) +
        " layers" + kFix + "the module's buffers");
  }
  if (norms.in_training_mode && !has_mode_) {
    log_warning(
        std::string(
            "[model] evaluations normalize each batch by its own statistics: the "
            "model's batch norm stays in training mode") +
        kFix + "a function that sets the mode");
  }
}

at::Tensor HiddenState::watch(
    const Forward& forward, const at::Tensor& input, bool training) {
  if (training) {
    const auto output = forward(input);
    if (output.requires_grad() && !std::exchange(trained_, true)) {
      check_graph(output);
    }
    return output;
  }
  // Later evaluations only read the flag, because several threads may run them at the
  // same time (train/predictor.h).
  if (evaluated_) {
    return forward(input);
  }
  evaluated_ = true;
  const auto before = random_state();
  const auto output = forward(input);
  if (random_state() != before) {
    log_warning(
        std::string(
            "[model] evaluations give a different result each time: the model draws "
            "random numbers, as dropout does in training mode") +
        kFix + "a function that sets the mode, also of functional dropout");
  }
  return output;
}

}  // namespace tandem

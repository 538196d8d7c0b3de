#include "tandem/core/recompute.h"

#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/core/autograd_node.h"
#include "tandem/core/torch_compat.h"

namespace tandem {

namespace {

namespace autograd = torch::autograd;

// Nodes that the calling thread makes after this object, without those that accumulate
// gradients of leaves.
class NewNodes {
 public:
  NewNodes()
      : thread_(at::RecordFunction::currentThreadId()),
        first_(at::sequence_number::peek()) {}

  bool contain(const autograd::Node& node) const {
    return node.thread_id() == thread_ && node.sequence_nr() >= first_ &&
           node.sequence_nr() != std::numeric_limits<uint64_t>::max();
  }

  // Calls body(edge) for each edge from a new node to another node. `roots` are edges
  // to new nodes.
  template <typename Body>
  void for_each_leaving_edge(const autograd::edge_list& roots, const Body& body) const {
    std::vector<autograd::Node*> stack;
    std::set<autograd::Node*> seen;
    const auto visit = [&](autograd::Node* node) {
      if (seen.insert(node).second) {
        stack.push_back(node);
      }
    };
    for (const auto& root : roots) {
      visit(root.function.get());
    }
    while (!stack.empty()) {
      autograd::Node* const node = stack.back();
      stack.pop_back();
      for (auto& edge : node->next_edges()) {
        if (edge.is_valid() && contain(*edge.function)) {
          visit(edge.function.get());
        } else if (edge.is_valid()) {
          body(edge);
        }
      }
    }
  }

 private:
  uint64_t thread_;
  uint64_t first_;
};

// Receives the gradients that leave a part of the graph, instead of other nodes.
class Receiver : public autograd::Node {
 public:
  explicit Receiver(const autograd::edge_list& replaced) : gradients(replaced.size()) {
    for (const auto& edge : replaced) {
      input_metadata_.emplace_back(edge.function->input_metadata(edge.input_nr));
    }
  }

  autograd::variable_list apply(autograd::variable_list&& received) override {
    gradients = std::move(received);
    return {};
  }

  autograd::variable_list gradients;
};

// Autocast's settings of a thread.
class AutocastState {
 public:
  // The settings of the calling thread.
  AutocastState() : caches_(at::autocast::is_autocast_cache_enabled()) {
    for (const auto type : {at::kCPU, at::kCUDA}) {
      devices_.push_back({type, autocast_enabled(type), autocast_dtype(type)});
    }
  }

  void set(bool caches) const {
    at::autocast::set_autocast_cache_enabled(caches);
    for (const auto& [type, enabled, dtype] : devices_) {
      set_autocast_enabled(type, enabled);
      set_autocast_dtype(type, dtype);
    }
  }
  void restore() const {
    set(caches_);
  }

 private:
  struct Device {
    at::DeviceType type;
    bool enabled;
    at::ScalarType dtype;
  };
  std::vector<Device> devices_;
  bool caches_;
};

// While the object exists, the calling thread has other settings of autocast. It does
// not cache conversions of parameters, so that both runs convert them.
class SameAutocast {
 public:
  explicit SameAutocast(const AutocastState& settings) {
    settings.set(/*caches=*/false);
  }
  ~SameAutocast() {
    outer_.restore();
  }
  SameAutocast(const SameAutocast&) = delete;
  SameAutocast& operator=(const SameAutocast&) = delete;

 private:
  AutocastState outer_;
};

// The differentiable tensors among the results of a run, as edges to new nodes.
struct Results {
  std::vector<at::Tensor> all;
  std::vector<size_t> differentiable;
  autograd::edge_list roots;
};

std::string description(const at::Tensor& tensor) {
  return c10::str(tensor.scalar_type(), " of shape ", tensor.sizes());
}

Results run(
    const RecomputedFunction& function, const std::vector<at::Tensor>& inputs,
    bool again, const AutocastState& autocast, const NewNodes& new_nodes) {
  const SameAutocast same(autocast);
  Results results;
  results.all = function(inputs, again);
  for (size_t i = 0; i < results.all.size(); ++i) {
    at::Tensor& result = results.all[i];
    if (!result.defined() || !result.requires_grad()) {
      continue;
    }
    if (result.grad_fn() == nullptr || !new_nodes.contain(*result.grad_fn())) {
      result = at::alias(result);
    }
    results.differentiable.push_back(i);
    results.roots.push_back(autograd::impl::gradient_edge(result));
  }
  return results;
}

class RecomputeBackward : public autograd::Node {
 public:
  RecomputeBackward(
      RecomputedFunction function, const std::vector<at::Tensor>& inputs,
      const AutocastState& autocast, const Results& results, autograd::edge_list edges)
      : function_(std::move(function)),
        autocast_(autocast),
        differentiable_(results.differentiable),
        edges_(edges) {
    set_next_edges(std::move(edges));
    for (const auto& input : inputs) {
      inputs_.emplace_back(input, /*is_output=*/false);
    }
    for (const size_t i : differentiable_) {
      add_input_metadata(results.all[i]);
      descriptions_.push_back(description(results.all[i]));
    }
  }

  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    if (is_released_) {
      throw Error(
          "[checkpoint] backward runs a second time, and the first one released the "
          "inputs; pass retain_graph = true to the first backward");
    }
    const bool create_graph = c10::GradMode::is_enabled();
    const c10::AutoGradMode grad(true);
    std::vector<at::Tensor> inputs;
    for (const auto& input : inputs_) {
      inputs.push_back(input.unpack());
    }
    const NewNodes new_nodes;
    const Results results =
        run(function_, inputs, /*again=*/true, autocast_, new_nodes);
    check(results);
    std::vector<at::Tensor> outputs;
    autograd::variable_list initial;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) {
        outputs.push_back(results.all[differentiable_[i]]);
        initial.push_back(std::move(gradients[i]));
      }
    }
    return backward(new_nodes, results.roots, outputs, initial, create_graph);
  }

  void release_variables() override {
    is_released_ = true;
    inputs_.clear();
    function_ = nullptr;
    edges_.clear();
  }

  std::string name() const override {
    return "RecomputeBackward";
  }

 private:
  void check(const Results& results) const {
    if (results.differentiable != differentiable_) {
      throw Error(fmt::format(
          "[checkpoint] {} results need a gradient in backward, expected {} as in "
          "forward; change the function so that both runs do the same",
          results.differentiable.size(), differentiable_.size()));
    }
    for (size_t i = 0; i < differentiable_.size(); ++i) {
      const std::string found = description(results.all[differentiable_[i]]);
      if (found != descriptions_[i]) {
        throw Error(fmt::format(
            "[checkpoint] result {} is {} in backward, expected {} as in forward; "
            "change the function so that both runs do the same",
            differentiable_[i], found, descriptions_[i]));
      }
    }
  }

  size_t index_of(const autograd::Edge& edge) const {
    const auto found = std::find(edges_.begin(), edges_.end(), edge);
    if (found == edges_.end()) {
      throw Error(
          "[checkpoint] the function uses a tensor in backward that it did not use in "
          "forward, or that an operator has changed in place; change the function so "
          "that both runs do the same");
    }
    return static_cast<size_t>(found - edges_.begin());
  }

  // Returns the gradients for `edges_`, which a Receiver gets instead of the nodes
  // of these edges. So hooks of these nodes run only once.
  autograd::variable_list backward(
      const NewNodes& new_nodes, const autograd::edge_list& roots,
      const std::vector<at::Tensor>& outputs, const autograd::variable_list& initial,
      bool create_graph) const {
    const NodeOwner owner = make_node<Receiver>(edges_);
    auto& receiver = static_cast<Receiver&>(*owner);
    std::vector<std::pair<autograd::Edge*, autograd::Edge>> replaced;
    new_nodes.for_each_leaving_edge(roots, [&](autograd::Edge& edge) {
      const auto index = static_cast<uint32_t>(index_of(edge));
      replaced.emplace_back(&edge, std::exchange(edge, {owner, index}));
    });
    if (!outputs.empty()) {
      autograd::backward(outputs, initial, /*retain_graph=*/create_graph, create_graph);
    }
    if (create_graph) {
      // Second derivatives continue to the original nodes.
      for (auto& [edge, original] : replaced) {
        *edge = std::move(original);
      }
    }
    return std::move(receiver.gradients);
  }

  RecomputedFunction function_;
  AutocastState autocast_;
  std::vector<autograd::SavedVariable> inputs_;
  // Indices of the results with gradients.
  std::vector<size_t> differentiable_;
  // Their types and shapes in forward.
  std::vector<std::string> descriptions_;
  // The edges from the nodes of the function to other nodes, in forward. If an outer
  // function is recomputed, next_edges() lead to its Receiver.
  autograd::edge_list edges_;
  bool is_released_ = false;
};

}  // namespace

std::vector<at::Tensor> recompute(
    RecomputedFunction function, const std::vector<at::Tensor>& inputs) {
  if (!c10::GradMode::is_enabled()) {
    return function(inputs, /*again=*/false);
  }
  const AutocastState autocast;
  const NewNodes new_nodes;
  Results results = run(function, inputs, /*again=*/false, autocast, new_nodes);
  if (results.differentiable.empty()) {
    return std::move(results.all);
  }
  autograd::edge_list edges;
  new_nodes.for_each_leaving_edge(results.roots, [&](const autograd::Edge& edge) {
    if (std::find(edges.begin(), edges.end(), edge) == edges.end()) {
      edges.push_back(edge);
    }
  });
  const NodeOwner node = make_node<RecomputeBackward>(
      std::move(function), inputs, autocast, results, std::move(edges));
  for (size_t i = 0; i < results.differentiable.size(); ++i) {
    at::Tensor& result = results.all[results.differentiable[i]];
    result = result.detach();
    autograd::impl::set_gradient_edge(result, {node, static_cast<uint32_t>(i)});
  }
  return std::move(results.all);
}

}  // namespace tandem

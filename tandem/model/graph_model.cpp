#include "tandem/model/graph_model.h"

#include <optional>
#include <utility>

#include "tandem/graph/interpreter.h"

namespace tandem {

namespace {

class GraphModel : public Model {
 public:
  GraphModel(Graph graph, StackFunction stack_statistics)
      : graph_(std::move(graph)), stack_statistics_(std::move(stack_statistics)) {
    verify(graph_);
    prepare();
  }

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    if (input.device() != device_) {
      device_ = input.device();
      prepare();
    }
    return interpreter_->run(input, context);
  }

  std::vector<NamedTensor> parameters() const override {
    return parameters_of(graph_);
  }
  std::vector<NamedTensor> buffers() const override {
    return buffers_of(graph_);
  }

  const Graph* graph() const override {
    return &graph_;
  }

  void keep_nodes(const NodeRange& range) override {
    graph_ = part_of(graph_, range);
    prepare();
  }

  void recompute(const std::vector<NodeRange>& segments) override {
    recomputed_ = segments;
    prepare();
  }

 private:
  void prepare() {
    interpreter_.emplace(graph_, stack_statistics_, device_, recomputed_);
  }

  Graph graph_;
  StackFunction stack_statistics_;
  std::vector<NodeRange> recomputed_;
  // Device of the inputs.
  at::Device device_ = at::kCPU;
  std::optional<Interpreter> interpreter_;
};

// Schemas describe dtypes as integers; `real_type` keeps the difference.
bool is_type(const c10::Argument& argument) {
  return argument.real_type()->str().find("ScalarType") != std::string::npos;
}

}  // namespace

std::unique_ptr<Model> make_graph_model(Graph graph, StackFunction stack_statistics) {
  return std::make_unique<GraphModel>(std::move(graph), std::move(stack_statistics));
}

void convert(Graph& graph, at::ScalarType dtype) {
  const auto other = dtype == at::kDouble ? at::kFloat : at::kDouble;
  for (auto& value : graph.values) {
    if (value.dtype == other) {
      value.dtype = dtype;
    }
    if (value.tensor.defined() && value.tensor.scalar_type() == other) {
      const bool trained = value.tensor.requires_grad();
      value.tensor = value.tensor.detach().to(dtype).set_requires_grad(trained);
    }
  }
  for (auto& node : graph.nodes) {
    const auto& arguments = schema_of(node).arguments();
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      auto& constant = node.arguments[i].constant;
      if (is_type(arguments[i]) && constant.isInt() &&
          constant.toInt() == static_cast<int64_t>(other)) {
        constant = static_cast<int64_t>(dtype);
      }
    }
  }
}

void turn_dropout_off(Graph& graph) {
  for (auto& node : graph.nodes) {
    const bool is_dropout = operator_row(node.target).has(kIsDropout);
    for (const char* name : {is_dropout ? "p" : "dropout", "dropout_p"}) {
      if (const auto index = schema_of(node).argumentIndexWithName(name)) {
        node.arguments[static_cast<size_t>(*index)] = Argument::of(0.0);
      }
    }
  }
}

}  // namespace tandem

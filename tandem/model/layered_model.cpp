#include <ATen/CPUGeneratorImpl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <utility>

#include "tandem/base/error.h"
#include "tandem/graph/trace.h"
#include "tandem/model/graph_model.h"
#include "tandem/model/hidden_state.h"
#include "tandem/model/layer_kinds.h"
#include "tandem/model/model.h"

namespace tandem {

namespace {

LayerState make_state(
    const Layer& layer, at::ScalarType dtype, const at::Generator& generator) {
  const auto initialize = row_of(layer).initialize;
  if (initialize == nullptr) {
    return {};
  }
  LayerState state = initialize(layer, dtype, generator);
  // Python also draws the values in float32.
  state.weight = state.weight.to(dtype).set_requires_grad(true);
  state.bias = state.bias.to(dtype).set_requires_grad(true);
  return state;
}

// Builds the graph of a sequence of layers.
class LayersToGraph {
 public:
  LayersToGraph(const std::vector<Layer>& layers, const ModelOptions& options)
      : options_(options),
        shape_(image_of(options.input)),
        flat_(options.input.size() == 1) {
    if (!layers.empty() && layers.front().kind == LayerKind::linear) {
      flat_ = true;
      shape_ = {layers.front().in, 1, 1};
    }
    Value input;
    input.kind = ValueKind::input;
    input.name = "input";
    input.dtype = options.dtype;
    input.shape = shape();
    last_ = graph_.input = add_value(graph_, std::move(input));
  }

  void add(const Layer& layer, const LayerState& state) {
    const LayerKindRow& row = row_of(layer);
    const LayerValues values = {
        state_value(layer, "weight", ValueKind::parameter, state.weight),
        state_value(layer, "bias", ValueKind::parameter, state.bias),
        state_value(layer, "running_mean", ValueKind::buffer, state.running_mean),
        state_value(layer, "running_var", ValueKind::buffer, state.running_var),
        state_value(
            layer, "num_batches_tracked", ValueKind::buffer, state.num_batches)};
    if (values.num_batches >= 0) {
      Node& count = add_node(
          graph_, "aten::add_", "Scalar",
          {Argument::of_value(values.num_batches), Argument::of(int64_t{1})}, {});
      count.module = layer.name;
    }
    flat_ =
        flat_ || layer.kind == LayerKind::flatten || layer.kind == LayerKind::linear;
    shape_ = output_of(layer, shape_);
    const auto arguments = row.arguments(layer, last_, values);
    last_ = add_value(graph_, {ValueKind::output, "", options_.dtype, shape()});
    Node& node = add_node(graph_, row.target, row.overload, arguments, {last_});
    node.module = layer.name;
    node.number = number_++;
    graph_.values[static_cast<size_t>(last_)].name = node.name;
    graph_.output = last_;
  }

  Graph take() {
    return std::move(graph_);
  }

 private:
  std::vector<Size> shape() const {
    return flat_ ? batch_shape({shape_.channels})
                 : batch_shape({shape_.channels, shape_.height, shape_.width});
  }

  ValueId state_value(
      const Layer& layer, const std::string& name, ValueKind kind,
      const at::Tensor& tensor) {
    return tensor.defined()
               ? add_value(graph_, value_of(kind, layer.name + "." + name, tensor))
               : -1;
  }

  const ModelOptions& options_;
  Graph graph_;
  InputShape shape_;
  // True if each sample is one row of features, at the start or after a layer.
  bool flat_ = false;
  ValueId last_ = 0;
  // Dropout masks depend on the index of the layer, without the nodes that count
  // batches.
  int64_t number_ = 0;
};

class FunctionModel : public Model {
 public:
  explicit FunctionModel(TraceableFunction function)
      : function_(std::move(function)),
        hidden_(function_.buffers, static_cast<bool>(function_.set_training)) {}

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    if (recorded_) {
      return recorded_->forward(input, context);
    }
    if (function_.set_training && training_ != static_cast<int>(context.training)) {
      function_.set_training(context.training);
      training_ = static_cast<int>(context.training);
    }
    return hidden_.watch(function_.forward, input, context.training);
  }

  std::vector<NamedTensor> parameters() const override {
    return recorded_ ? recorded_->parameters() : function_.parameters;
  }
  std::vector<NamedTensor> buffers() const override {
    return recorded_ ? recorded_->buffers() : function_.buffers;
  }

  const Graph* graph() const override {
    return recorded_ ? recorded_->graph() : nullptr;
  }

  std::string record_graph(
      const std::vector<int64_t>& sample_shape, at::ScalarType dtype) override {
    training_ = -1;
    try {
      recorded_ = make_graph_model(trace(function_, sample_shape, dtype));
      return "";
    } catch (const NoGraph& reason) {
      return reason.what();
    }
  }

  void keep_nodes(const NodeRange& range) override {
    TANDEM_CHECK(recorded_ != nullptr, "a function has no nodes to keep");
    recorded_->keep_nodes(range);
  }

  void recompute(const std::vector<NodeRange>& segments) override {
    TANDEM_CHECK(recorded_ != nullptr, "a function has no nodes to recompute");
    recorded_->recompute(segments);
  }

 private:
  TraceableFunction function_;
  HiddenState hidden_;
  // -1: not set yet.
  int training_ = -1;
  // Runs instead of `function_` after record_graph().
  std::unique_ptr<Model> recorded_;
};

}  // namespace

InputShape image_of(const std::vector<int64_t>& sample) {
  if (sample.size() == 3) {
    return {sample[0], sample[1], sample[2]};
  }
  if (sample.size() != 1) {
    throw ConfigError(fmt::format(
        "[model] a sample has the shape [{}], but the model expects images (channels, "
        "height, width) or features (one size); change --model or --data",
        fmt::join(sample, ", ")));
  }
  return {sample[0], 1, 1};
}

std::vector<NamedTensor> Model::state() const {
  auto all = parameters();
  const auto more = buffers();
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string Model::record_graph(const std::vector<int64_t>&, at::ScalarType) {
  return graph() != nullptr ? "" : "the model is not a torch::nn module";
}

void Model::keep_nodes(const NodeRange&) {
  TANDEM_CHECK(false, "a model without a graph has no nodes to keep");
}

void Model::recompute(const std::vector<NodeRange>&) {
  throw ConfigError(
      "[model] the model does not implement recompute(), which --recompute needs; "
      "leave "
      "out --recompute");
}

std::unique_ptr<Model> make_layered_model(
    std::vector<Layer> layers, const ModelOptions& options) {
  const auto generator = at::detail::createCPUGenerator(options.seed);
  LayersToGraph builder(layers, options);
  for (const auto& layer : layers) {
    const bool is_dropout = operator_row(row_of(layer).target).has(kIsDropout);
    if (options.dropout || !is_dropout) {
      builder.add(layer, make_state(layer, options.dtype, generator));
    }
  }
  return make_graph_model(builder.take(), options.stack_statistics);
}

std::unique_ptr<Model> make_function_model(
    std::function<at::Tensor(const at::Tensor&)> forward,
    std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
    std::function<void(bool training)> set_training) {
  return std::make_unique<FunctionModel>(TraceableFunction{
      std::move(forward), std::move(parameters), std::move(buffers),
      std::move(set_training)});
}

}  // namespace tandem

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/graph/cuts.h"
#include "tandem/graph/graph.h"
#include "tandem/graph/operators.h"
#include "tandem/model/layers.h"
#include "tandem/model/loss.h"

namespace tandem {

/// A function with parameters that maps inputs to outputs. Either autograd or an
/// executor that compiles graph() computes the gradients. Not thread-safe, except for
/// evaluations after the first evaluation.
class Model {
 public:
  virtual ~Model() = default;

  /// Returns the outputs, one row per sample.
  virtual at::Tensor forward(
      const at::Tensor& input, const ForwardContext& context) = 0;

  /// Returns the parameters in order of registration, with the names of Python's
  /// state_dict(). They share memory with the model.
  virtual std::vector<NamedTensor> parameters() const = 0;

  /// Returns the buffers, such as batch norm's running statistics, in order of
  /// registration, with the names of Python's state_dict(). They share memory with the
  /// model.
  virtual std::vector<NamedTensor> buffers() const = 0;

  /// Returns the parameters, then the buffers.
  [[nodiscard]] std::vector<NamedTensor> state() const;

  /// Returns the model as a graph, which executors compile and pipelines divide.
  /// Returns null for a model that is only a function.
  virtual const Graph* graph() const {
    return nullptr;
  }

  /// Records the model as a graph (graph/trace.h), so that graph() is no longer null.
  /// The model then runs the graph instead of the function, and dropout draws masks as
  /// in tandem's models. Returns "", or the reason why the function has no graph.
  virtual std::string record_graph(
      const std::vector<int64_t>& sample_shape, at::ScalarType dtype);

  /// Removes all nodes of the graph except the nodes in `range`, which are a stage of a
  /// pipeline. The remaining nodes keep the names, values and dropout masks that they
  /// have in the whole model. graph() must not be null.
  virtual void keep_nodes(const NodeRange& range);

  /// Makes training forget the values of these nodes after forward and compute them
  /// again in backward. `segments` are those of recomputable() (graph/segments.h) for
  /// graph(), which must not be null.
  virtual void recompute(const std::vector<NodeRange>& segments);
};

/// Size of the values between two layers. For features without height and width,
/// `channels` is the number of features.
struct InputShape {
  int64_t channels = 1;
  int64_t height = 1;
  int64_t width = 1;
};

/// Returns the shape {channels, height, width} or {features} of a sample. Throws
/// ConfigError for another number of sizes.
[[nodiscard]] InputShape image_of(const std::vector<int64_t>& sample);

/// Options of a built-in model or of a network file.
struct ModelOptions {
  // Sizes of one sample.
  std::vector<int64_t> input = {1, 28, 28};
  // True: inputs are indices of int64 instead of numbers of `dtype`.
  bool index_input = false;
  int64_t num_classes = 10;
  // Seed of the initial weights, which are those of Python's model after
  // torch.manual_seed(seed).
  uint64_t seed = 0;
  at::ScalarType dtype = at::kFloat;
  // False removes the dropout layers.
  bool dropout = true;
  // False: the parameters and buffers of a network of torch.export may have any values,
  // because those of another rank will be copied into them.
  bool has_values = true;
  // Exchanges batch norm's statistics, so that training uses the samples of all ranks
  // (sync_batch_norm.h). Empty: batch norm uses this rank's samples.
  StackFunction stack_statistics;
};

/// Returns the layers of a built-in model. Throws ConfigError for other models, and if
/// the input is too small or not an image for the model's convolutions.
[[nodiscard]] std::vector<Layer> layers_of(ModelKind kind, const ModelOptions& options);

/// Returns a model with the layers of layers_of(kind). Throws the errors of
/// layers_of().
[[nodiscard]] std::unique_ptr<Model> make_model(
    ModelKind kind, const ModelOptions& options);

/// Returns a model of these layers, with the initial values of PyTorch's modules.
[[nodiscard]] std::unique_ptr<Model> make_layered_model(
    std::vector<Layer> layers, const ModelOptions& options);

/// Returns a model from any forward function and the parameters and buffers that it
/// uses, for instance a TorchScript module. For a torch::nn module see module_model.h.
///
/// The model calls `set_training` when the mode changes. Without `set_training`,
/// evaluations run in the mode that the module already has. A buffer that is not in
/// `buffers` is neither saved nor synchronized. HiddenState (hidden_state.h) warns of
/// some of these cases. A module that draws from LibTorch's global generator is
/// reproducible with process ranks only.
[[nodiscard]] std::unique_ptr<Model> make_function_model(
    std::function<at::Tensor(const at::Tensor&)> forward,
    std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers = {},
    std::function<void(bool training)> set_training = {});

}  // namespace tandem

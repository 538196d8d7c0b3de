#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/core/numerics.h"
#include "tandem/model/dropout.h"
#include "tandem/model/layers.h"
#include "tandem/model/loss.h"
#include "tandem/model/sync_batch_norm.h"

namespace tandem {

/// What a forward pass needs to know beside its input.
struct ForwardContext {
  bool training = true;
  // fp16: what layers round; `bf16` counts as `none`.
  Rounding rounding = Rounding::none;
  SampleContext samples;
  // Called with each layer and its output while a layered model runs forward.
  std::function<void(const Layer&, const at::Tensor&)> after_layer;
};

/// Something with parameters that turns inputs into outputs. Gradients come from
/// autograd, or from an executor that understands layers(). Not thread-safe.
class Model {
 public:
  virtual ~Model() = default;

  virtual at::Tensor forward(
      const at::Tensor& input, const ForwardContext& context) = 0;

  /// In order of registration, with the names of Python's state_dict(). The
  /// tensors are the model's own: changing one changes the model.
  virtual std::vector<NamedTensor> parameters() const = 0;
  virtual std::vector<NamedTensor> buffers() const = 0;

  /// The layers in order of execution, for executors that compile them and
  /// pipelines that cut between them; null for a model that is not a plain
  /// sequence.
  virtual const std::vector<Layer>* layers() const {
    return nullptr;
  }

  /// Drops all layers but [begin, end). What is left, a pipeline's stage, has the
  /// names, values and dropout masks of the whole model. Only where layers() is not
  /// null.
  virtual void keep_layers(size_t begin, size_t end);
};

/// Size of one input.
struct InputShape {
  int64_t channels = 1;
  int64_t height = 28;
  int64_t width = 28;
};

struct ModelOptions {
  InputShape input;
  int64_t num_classes = 10;
  // The same seed gives the weights that Python's model has after
  // torch.manual_seed(seed).
  uint64_t seed = 0;
  at::ScalarType dtype = at::kFloat;
  // False leaves the dropout layers out.
  bool dropout = true;
  // Through this, batch norm in training takes its statistics from the samples of all
  // ranks (sync_batch_norm.h); empty: from those of this rank.
  StackFunction stack_statistics;
};

/// The layers of a model other than `custom`. Throws ConfigError when the input is too
/// small for them.
[[nodiscard]] std::vector<Layer> layers_of(ModelKind kind, const ModelOptions& options);

/// A model of these layers. Throws as layers_of().
[[nodiscard]] std::unique_ptr<Model> make_model(
    ModelKind kind, const ModelOptions& options);

/// A model from layers: initialised as PyTorch initialises its modules.
[[nodiscard]] std::unique_ptr<Model> make_layered_model(
    std::vector<Layer> layers, const ModelOptions& options);

/// A model from any forward function and the parameters and buffers that it uses, for
/// instance a TorchScript module; module_model.h makes one from a torch::nn module.
/// `set_training` is called when the mode changes. A buffer that is not named here is
/// neither saved nor synchronised. Without `set_training` evaluations run in the
/// module's current mode. hidden_state.h warns of some of these cases. A module that
/// draws from LibTorch's global generator is reproducible with process ranks only.
[[nodiscard]] std::unique_ptr<Model> make_function_model(
    std::function<at::Tensor(const at::Tensor&)> forward,
    std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers = {},
    std::function<void(bool training)> set_training = {});

}  // namespace tandem

#pragma once

#include <memory>
#include <utility>

#include "tandem/core/module_state.h"
#include "tandem/model/model.h"

namespace tandem {

/// Returns a model from a torch::nn module, with its parameters, its buffers (batch
/// norm's running statistics and num_batches_tracked) and its training mode.
///
///   auto net = std::make_shared<Net>();  // or a module holder: Net net;
///   tandem::train(config, data, *run.comm, tandem::make_module_model(net));
///
/// `net` is a module holder (TORCH_MODULE, torch::nn::Sequential) or a std::shared_ptr
/// to a torch::nn::Module. Its forward() accepts a batch of samples and returns one row
/// of outputs per sample. Names are those of Python's state_dict() for the same
/// modules, so an exported checkpoint loads with strict=True. A tensor that the module
/// holds under two names (tied weights) keeps the first name.
///
/// **Mode.** The run calls train() and eval(). Pass the mode to functional calls:
/// dropout(x, FuncOptions().training(is_training())).
///
/// **Ownership.** The model and `net` share one module. Its tensors are moved into
/// arenas, so do not move or replace them while the model is used. Construct your own
/// optimizer after the move. After train(), `net` has the trained values and is in
/// evaluation mode.
///
/// **Thread ranks.** Each rank needs its own module, constructed in its thread, because
/// modules write into their buffers. LibTorch draws initial weights and dropout masks
/// from one generator per process, so these values are reproducible with process ranks
/// only.
///
/// This header does not include LibTorch's modules. Include <torch/nn.h> in the file
/// that defines your module.
template <typename Net>
[[nodiscard]] std::unique_ptr<Model> make_module_model(Net net) {
  auto parameters = named_tensors(net->named_parameters());
  auto buffers = named_tensors(net->named_buffers());
  return make_function_model(
      [net](const at::Tensor& images) mutable { return net->forward(images); },
      std::move(parameters), std::move(buffers),
      [net](bool training) mutable { net->train(training); });
}

}  // namespace tandem

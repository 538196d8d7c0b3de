#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tandem/model/model.h"

namespace tandem {

/// A model from a whole torch::nn module: its parameters, its buffers (batch norm's
/// running statistics and num_batches_tracked), and its training mode.
///
///   auto net = std::make_shared<Net>();  // or a module holder: Net net;
///   tandem::train(config, data, *run.comm, tandem::make_module_model(net));
///
/// `net`: a module holder (TORCH_MODULE, torch::nn::Sequential) or a std::shared_ptr to
/// a torch::nn::Module whose forward() accepts a batch of images and returns a row of
/// outputs for each. Names are those of Python's state_dict() for the same modules, so
/// an exported checkpoint loads with strict=True. A tensor that the module holds twice
/// (tied weights) has its first name only.
///
/// **Mode.** train() and eval() are called as the run trains and evaluates. A
/// functional call must get the mode itself: dropout(x,
/// FuncOptions().training(is_training())).
///
/// **Ownership.** The model and `net` are the same module. Its tensors move into
/// arenas, so do not move or replace them while the model is used; make your own
/// optimizer afterwards. After train() `net` holds the trained values, in evaluation
/// mode.
///
/// **Thread ranks.** Each rank needs its own module, made in its thread: modules
/// write into their buffers. LibTorch draws initial weights and dropout masks from one
/// generator per process, so their values are reproducible with process ranks only.
///
/// Needs no header of LibTorch's modules: include <torch/nn.h> where you define yours.
template <typename Net>
[[nodiscard]] std::unique_ptr<Model> make_module_model(Net net) {
  const auto named = [](const auto& dict) {
    std::vector<NamedTensor> list;
    for (const auto& item : dict) {
      // Without running statistics, batch norm registers buffers that are undefined.
      if (item.value().defined()) {
        list.push_back({item.key(), item.value()});
      }
    }
    return list;
  };
  auto parameters = named(net->named_parameters());
  auto buffers = named(net->named_buffers());
  return make_function_model(
      [net](const at::Tensor& images) mutable { return net->forward(images); },
      std::move(parameters), std::move(buffers),
      [net](bool training) mutable { net->train(training); });
}

}  // namespace tandem

#include "tandem/exec/compiled/bound_layers.h"

#include <map>
#include <utility>

namespace tandem {

namespace {

// Finds the tensors of layers in a model's arenas.
class Binder {
 public:
  explicit Binder(ModelArenas& arenas) : arenas_(arenas) {
    for (const auto& named : arenas.state()) {
      tensors_[named.name] = named.tensor;
    }
    const auto& slots = arenas.parameters().layout().slots();
    for (size_t i = 0; i < slots.size(); ++i) {
      slots_[slots[i].name] = i;
    }
  }

  std::vector<BoundLayer> bind(const std::vector<Layer>& layers) const {
    std::vector<BoundLayer> bound;
    for (const auto& fused : fuse_relus(layers)) {
      bound.push_back({fused, tensors_of(fused.layer), slots_of(fused.layer)});
    }
    return bound;
  }

 private:
  // The slots are in the order of the arena, last registered first.
  std::vector<size_t> slots_of(const Layer& layer) const {
    const auto weight = slots_.find(layer.name + ".weight");
    return weight == slots_.end()
               ? std::vector<size_t>{}
               : std::vector<size_t>{slots_.at(layer.name + ".bias"), weight->second};
  }

  LayerTensors tensors_of(const Layer& layer) const {
    const auto slots = slots_of(layer);
    if (slots.empty()) {
      return {};
    }
    return {
        {tensors_.at(layer.name + ".weight"), tensors_.at(layer.name + ".bias"),
         buffer(layer.name + ".running_mean"), buffer(layer.name + ".running_var"),
         buffer(layer.name + ".num_batches_tracked")},
        arenas_.gradients().view(slots[1]),
        arenas_.gradients().view(slots[0])};
  }

  at::Tensor buffer(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? at::Tensor() : found->second;
  }

  ModelArenas& arenas_;
  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, size_t> slots_;
};

}  // namespace

std::vector<FusedLayer> fuse_relus(const std::vector<Layer>& layers) {
  std::vector<FusedLayer> fused;
  bool next_has_relu = false;
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool relu = layers[i].kind == LayerKind::relu;
    if (relu && i + 1 < layers.size() && row_of(layers[i + 1]).has(kFusesReluBefore)) {
      next_has_relu = true;
    } else if (
        relu && !fused.empty() && row_of(fused.back().layer).has(kFusesReluAfter)) {
      fused.back().relu = true;
    } else {
      fused.push_back({layers[i], std::exchange(next_has_relu, false)});
    }
  }
  return fused;
}

std::vector<BoundLayer> bind_layers(
    const std::vector<Layer>& layers, ModelArenas& arenas) {
  return Binder(arenas).bind(layers);
}

size_t first_with_gradient(const std::vector<BoundLayer>& layers, bool first_stage) {
  size_t first = 0;
  while (first_stage && first < layers.size() && layers[first].slots.empty()) {
    ++first;
  }
  return first;
}

std::string layers_obstacle(
    const Model& model, const ModelArenas& arenas, const StageOptions& options) {
  if (options.loss.own) {
    return "the program has a loss of its own";
  }
  if (model.layers() == nullptr) {
    return "the model is not a plain sequence of layers";
  }
  if (options.stacked_statistics) {
    return "with --buffers sync, batch norm needs other ranks' statistics, which it "
           "does not exchange";
  }
  for (const auto& tensor : arenas.tensors()) {
    if (!tensor.requires_grad()) {
      return "some parameters are frozen";
    }
    if (!tensor.is_contiguous()) {
      return "some parameters are not contiguous, as with --channels-last";
    }
  }
  return "";
}

}  // namespace tandem

#include "tandem/exec/compiled/bound_layers.h"

#include <ATen/ops/zeros_like.h>

#include <map>
#include <string>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {

namespace {

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
      bound.push_back(
          {fused, tensors_of(fused.layer), trainable(slots_of(fused.layer))});
    }
    return bound;
  }

 private:
  // Returns the slots of a layer's parameters in the order of the arena, in which the
  // parameter registered last is first.
  std::vector<size_t> slots_of(const Layer& layer) const {
    const auto weight = slots_.find(layer.name + ".weight");
    return weight == slots_.end()
               ? std::vector<size_t>{}
               : std::vector<size_t>{slots_.at(layer.name + ".bias"), weight->second};
  }

  std::vector<size_t> trainable(const std::vector<size_t>& slots) const {
    std::vector<size_t> found;
    for (const size_t slot : slots) {
      if (arenas_.tensors()[slot].requires_grad()) {
        found.push_back(slot);
      }
    }
    return found;
  }

  LayerTensors tensors_of(const Layer& layer) const {
    const auto slots = slots_of(layer);
    if (slots.empty()) {
      return {};
    }
    const bool trained = !trainable(slots).empty();
    return {
        {tensors_.at(layer.name + ".weight"), tensors_.at(layer.name + ".bias"),
         buffer(layer.name + ".running_mean"), buffer(layer.name + ".running_var"),
         counter(layer.name + ".num_batches_tracked")},
        trained ? gradient(slots[1]) : at::Tensor(),
        trained ? gradient(slots[0]) : at::Tensor()};
  }

  at::Tensor gradient(size_t slot) const {
    const at::Tensor& parameter = arenas_.tensors()[slot];
    return parameter.requires_grad() ? arenas_.gradients().view(slot)
                                     : at::zeros_like(parameter.detach());
  }

  at::Tensor buffer(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? at::Tensor() : found->second;
  }

  at::Tensor counter(const std::string& name) const {
    const at::Tensor found = buffer(name);
    if (found.defined() && (found.scalar_type() != at::kLong || found.numel() != 1)) {
      throw ConfigError(
          "[exec] buffer '" + name + "' is " + c10::toString(found.scalar_type()) +
          " of shape " + c10::str(found.sizes()) +
          ", expected one int64; use --executor eager");
    }
    return found;
  }

  ModelArenas& arenas_;
  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, size_t> slots_;
};

}  // namespace

std::vector<BoundLayer> bind_layers(
    const std::vector<Layer>& layers, ModelArenas& arenas) {
  return Binder(arenas).bind(layers);
}

}  // namespace tandem

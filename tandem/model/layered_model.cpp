#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "tandem/base/error.h"
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

// Rounds values to float16. Backward rounds their gradient.
at::Tensor rounded(const at::Tensor& x) {
  return x.to(at::kHalf).to(x.scalar_type());
}

// Runs a layer with the roundings of a device that multiplies in 16 bits.
at::Tensor rounded_forward(
    const LayerKindRow& row, const LayerCall& call, const at::Tensor& x) {
  switch (row.rounds) {
    case RoundedValues::all: {
      LayerState state = call.state;
      state.weight = rounded(state.weight);
      state.bias = rounded(state.bias);
      const LayerCall rounded_call{
          call.layer, state, call.context, call.stack_statistics, call.in_place};
      return rounded(row.forward(rounded_call, rounded(x)));
    }
    case RoundedValues::output:
      return rounded(row.forward(call, x));
    case RoundedValues::output_in_o2: {
      const auto output = row.forward(call, x);
      return call.context.rounding == Rounding::fp16_o2 ? rounded(output) : output;
    }
    case RoundedValues::none:
      break;
  }
  return row.forward(call, x);
}

class LayeredModel : public Model {
 public:
  LayeredModel(std::vector<Layer> layers, const ModelOptions& options)
      : layers_(std::move(layers)), stack_statistics_(options.stack_statistics) {
    if (!options.dropout) {
      layers_.erase(
          std::remove_if(
              layers_.begin(), layers_.end(),
              [](const Layer& layer) { return row_of(layer).has(kIsDropout); }),
          layers_.end());
    }
    for (size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].place = static_cast<int64_t>(i);
    }
    const auto generator = at::detail::createCPUGenerator(options.seed);
    for (const auto& layer : layers_) {
      states_.push_back(make_state(layer, options.dtype, generator));
    }
  }

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    at::Tensor x = context.rounding == Rounding::fp16_o2 ? rounded(input) : input;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const LayerKindRow& row = row_of(layers_[i]);
      const bool in_place = i > 0 && row_of(layers_[i - 1]).has(kKeepsOnlyInput);
      const LayerCall call{
          layers_[i], states_[i], context, stack_statistics_, in_place};
      x = is_fp16(context.rounding) ? rounded_forward(row, call, x)
                                    : row.forward(call, x);
      if (context.after_layer) {
        context.after_layer(layers_[i], x);
      }
    }
    return x;
  }

  std::vector<NamedTensor> parameters() const override {
    std::vector<NamedTensor> all;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (states_[i].weight.defined()) {
        all.push_back({layers_[i].name + ".weight", states_[i].weight});
        all.push_back({layers_[i].name + ".bias", states_[i].bias});
      }
    }
    return all;
  }

  std::vector<NamedTensor> buffers() const override {
    std::vector<NamedTensor> all;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (states_[i].running_mean.defined()) {
        all.push_back({layers_[i].name + ".running_mean", states_[i].running_mean});
        all.push_back({layers_[i].name + ".running_var", states_[i].running_var});
        all.push_back(
            {layers_[i].name + ".num_batches_tracked", states_[i].num_batches});
      }
    }
    return all;
  }

  const std::vector<Layer>* layers() const override {
    return &layers_;
  }

  void keep_layers(size_t begin, size_t end) override {
    TANDEM_CHECK(begin < end && end <= layers_.size(), "no such layers");
    layers_ = {layers_.begin() + begin, layers_.begin() + end};
    states_ = {states_.begin() + begin, states_.begin() + end};
  }

 private:
  std::vector<Layer> layers_;
  std::vector<LayerState> states_;
  StackFunction stack_statistics_;
};

class FunctionModel : public Model {
 public:
  FunctionModel(
      std::function<at::Tensor(const at::Tensor&)> forward,
      std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
      std::function<void(bool)> set_training)
      : forward_(std::move(forward)),
        parameters_(std::move(parameters)),
        buffers_(std::move(buffers)),
        set_training_(std::move(set_training)),
        hidden_(buffers_, static_cast<bool>(set_training_)) {}

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    if (set_training_ && training_ != static_cast<int>(context.training)) {
      set_training_(context.training);
      training_ = static_cast<int>(context.training);
    }
    return hidden_.watch(forward_, input, context.training);
  }

  std::vector<NamedTensor> parameters() const override {
    return parameters_;
  }
  std::vector<NamedTensor> buffers() const override {
    return buffers_;
  }

 private:
  std::function<at::Tensor(const at::Tensor&)> forward_;
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::function<void(bool)> set_training_;
  HiddenState hidden_;
  // -1: not set yet.
  int training_ = -1;
};

}  // namespace

void Model::keep_layers(size_t, size_t) {
  TANDEM_CHECK(false, "a model that is not a plain sequence has no layers to keep");
}

std::unique_ptr<Model> make_layered_model(
    std::vector<Layer> layers, const ModelOptions& options) {
  return std::make_unique<LayeredModel>(std::move(layers), options);
}

std::unique_ptr<Model> make_function_model(
    std::function<at::Tensor(const at::Tensor&)> forward,
    std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
    std::function<void(bool training)> set_training) {
  return std::make_unique<FunctionModel>(
      std::move(forward), std::move(parameters), std::move(buffers),
      std::move(set_training));
}

}  // namespace tandem

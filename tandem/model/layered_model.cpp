#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/model/hidden_state.h"
#include "tandem/model/model.h"

namespace tandem {

namespace {

constexpr double kBatchNormMomentum = 0.1;
constexpr double kBatchNormEpsilon = 1e-5;

// The tensors of one layer; undefined where it has none.
struct LayerTensors {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
  at::Tensor num_batches;
};

// torch.nn.init.kaiming_uniform_(a=sqrt(5)) and the bias beside it, with the
// same arithmetic and the same draws (torch/nn/modules/{conv,linear}.py).
void initialise(LayerTensors& tensors, int64_t fan_in, const at::Generator& generator) {
  const double a = std::sqrt(5.0);
  const double gain = std::sqrt(2.0 / (1 + a * a));
  const double std = gain / std::sqrt(static_cast<double>(fan_in));
  const double weight_bound = std::sqrt(3.0) * std;
  const double bias_bound = 1 / std::sqrt(static_cast<double>(fan_in));
  tensors.weight.uniform_(-weight_bound, weight_bound, generator);
  tensors.bias.uniform_(-bias_bound, bias_bound, generator);
}

LayerTensors make_tensors(
    const Layer& layer, at::ScalarType dtype, const at::Generator& generator) {
  LayerTensors tensors;
  switch (layer.kind) {
    case LayerKind::conv2d:
      tensors.weight = at::empty({layer.out, layer.in, layer.kernel, layer.kernel});
      tensors.bias = at::empty({layer.out});
      initialise(tensors, layer.in * layer.kernel * layer.kernel, generator);
      break;
    case LayerKind::linear:
      tensors.weight = at::empty({layer.out, layer.in});
      tensors.bias = at::empty({layer.out});
      initialise(tensors, layer.in, generator);
      break;
    case LayerKind::batch_norm2d:
      tensors.weight = at::ones({layer.out});
      tensors.bias = at::zeros({layer.out});
      tensors.running_mean = at::zeros({layer.out}, dtype);
      tensors.running_var = at::ones({layer.out}, dtype);
      tensors.num_batches = at::zeros({}, at::kLong);
      break;
    default:
      return tensors;
  }
  // Drawn in float32, as Python draws them, then widened.
  tensors.weight = tensors.weight.to(dtype).set_requires_grad(true);
  tensors.bias = tensors.bias.to(dtype).set_requires_grad(true);
  return tensors;
}

// Works for a batch without samples too.
int64_t elements_per_sample(const at::Tensor& x) {
  int64_t elements = 1;
  for (int64_t dim = 1; dim < x.dim(); ++dim) {
    elements *= x.size(dim);
  }
  return elements;
}

// Backward rounds the gradient in the same way.
at::Tensor rounded(const at::Tensor& x) {
  return x.to(at::kHalf).to(x.scalar_type());
}

bool is_dropout(const Layer& layer) {
  return layer.kind == LayerKind::dropout || layer.kind == LayerKind::dropout2d;
}

class LayeredModel : public Model {
 public:
  LayeredModel(std::vector<Layer> layers, const ModelOptions& options)
      : layers_(std::move(layers)), stack_statistics_(options.stack_statistics) {
    if (!options.dropout) {
      layers_.erase(
          std::remove_if(layers_.begin(), layers_.end(), is_dropout), layers_.end());
    }
    for (size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].place = static_cast<int64_t>(i);
    }
    const auto generator = at::detail::createCPUGenerator(options.seed);
    for (const auto& layer : layers_) {
      tensors_.push_back(make_tensors(layer, options.dtype, generator));
    }
  }

  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    at::Tensor x = context.rounding == Rounding::fp16_o2 ? rounded(input) : input;
    for (size_t i = 0; i < layers_.size(); ++i) {
      x = is_fp16(context.rounding) ? apply_in_half(i, x, context)
                                    : apply(i, x, context);
      if (context.after_layer) {
        context.after_layer(layers_[i], x);
      }
    }
    return x;
  }

  std::vector<NamedTensor> parameters() const override {
    std::vector<NamedTensor> all;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (tensors_[i].weight.defined()) {
        all.push_back({layers_[i].name + ".weight", tensors_[i].weight});
        all.push_back({layers_[i].name + ".bias", tensors_[i].bias});
      }
    }
    return all;
  }

  std::vector<NamedTensor> buffers() const override {
    std::vector<NamedTensor> all;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (tensors_[i].running_mean.defined()) {
        all.push_back({layers_[i].name + ".running_mean", tensors_[i].running_mean});
        all.push_back({layers_[i].name + ".running_var", tensors_[i].running_var});
        all.push_back(
            {layers_[i].name + ".num_batches_tracked", tensors_[i].num_batches});
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
    tensors_ = {tensors_.begin() + begin, tensors_.begin() + end};
  }

 private:
  at::Tensor apply(size_t index, const at::Tensor& x, const ForwardContext& context) {
    return apply(index, tensors_[index], x, context);
  }

  at::Tensor apply_in_half(
      size_t index, const at::Tensor& x, const ForwardContext& context) {
    switch (layers_[index].kind) {
      case LayerKind::conv2d:
      case LayerKind::linear: {
        LayerTensors tensors = tensors_[index];
        tensors.weight = rounded(tensors.weight);
        tensors.bias = rounded(tensors.bias);
        return rounded(apply(index, tensors, rounded(x), context));
      }
      case LayerKind::log_softmax: {
        const auto output = apply(index, x, context);
        return context.rounding == Rounding::fp16_o2 ? rounded(output) : output;
      }
      case LayerKind::batch_norm2d:
      case LayerKind::dropout:
      case LayerKind::dropout2d:
        return rounded(apply(index, x, context));
      default:
        // Gives values that it takes.
        return apply(index, x, context);
    }
  }

  at::Tensor apply(
      size_t index, LayerTensors& tensors, const at::Tensor& x,
      const ForwardContext& context) {
    const Layer& layer = layers_[index];
    switch (layer.kind) {
      case LayerKind::conv2d:
        return at::conv2d(x, tensors.weight, tensors.bias, layer.stride, layer.padding);
      case LayerKind::linear:
        return at::linear(x, tensors.weight, tensors.bias);
      case LayerKind::batch_norm2d:
        return batch_norm(tensors, x, context.training);
      case LayerKind::relu:
        return in_place_is_safe(index) ? at::Tensor(x).relu_() : x.relu();
      case LayerKind::max_pool2d:
        return at::max_pool2d(x, layer.kernel, layer.stride);
      case LayerKind::dropout:
      case LayerKind::dropout2d:
        return context.training ? drop(index, x, context) : x;
      case LayerKind::flatten:
        return x.flatten(1);
      default:
        // Under autocast x is bfloat16, whose steps near a loss of 0.01 are too coarse.
        return at::log_softmax(
            x.scalar_type() == at::kBFloat16 ? x.to(at::kFloat) : x, 1);
    }
  }

  // Convolution and linear keep their inputs for backward, not their outputs.
  bool in_place_is_safe(size_t index) const {
    return index > 0 && (layers_[index - 1].kind == LayerKind::conv2d ||
                         layers_[index - 1].kind == LayerKind::linear);
  }

  at::Tensor batch_norm(
      LayerTensors& tensors, const at::Tensor& x, bool training) const {
    if (training) {
      tensors.num_batches.add_(1);
    }
    if (training && stack_statistics_) {
      return sync_batch_norm(
          x, tensors.weight, tensors.bias, tensors.running_mean, tensors.running_var,
          kBatchNormMomentum, kBatchNormEpsilon, stack_statistics_);
    }
    return at::batch_norm(
        x, tensors.weight, tensors.bias, tensors.running_mean, tensors.running_var,
        training, kBatchNormMomentum, kBatchNormEpsilon, false);
  }

  at::Tensor drop(
      size_t index, const at::Tensor& x, const ForwardContext& context) const {
    const Layer& layer = layers_[index];
    const bool whole_channels = layer.kind == LayerKind::dropout2d && x.dim() == 4;
    const int64_t elements = whole_channels ? x.size(1) : elements_per_sample(x);
    const auto dtype = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto mask = dropout_mask(
                          context.samples, layer.place, x.size(0), elements, layer.p,
                          at::TensorOptions(dtype).device(x.device()))
                          .to(x.scalar_type());
    return x.mul(
        whole_channels ? mask.view({x.size(0), x.size(1), 1, 1})
                       : mask.view(x.sizes()));
  }

  std::vector<Layer> layers_;
  std::vector<LayerTensors> tensors_;
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
  // -1 until it is set, then 0 or 1.
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

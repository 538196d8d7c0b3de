// Models of the five tutorials, with Python's names of parameters.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "tandem/base/error.h"
#include "tandem/model/layer_kinds.h"
#include "tandem/model/model.h"

namespace tandem {

namespace {

// Returns the number of channels of the images that a model expects.
int64_t channels_of(const ModelOptions& o) {
  if (o.input.size() != 3) {
    throw ConfigError(fmt::format(
        "[model] a sample has the shape {}, expected channels x height x width for "
        "this model's convolutions; set --shape such as 1,28,28, or change --model to "
        "simplenet or a network file",
        fmt::join(o.input, "x")));
  }
  return o.input[0];
}

// Returns the number of features after these layers, which end with flatten().
int64_t features_of(const std::vector<Layer>& layers, const ModelOptions& o) {
  const InputShape image = image_of(o.input);
  InputShape shape = image;
  for (const auto& layer : layers) {
    shape = output_of(layer, shape);
    if (shape.height < 1 || shape.width < 1) {
      throw ConfigError(
          "[model] images of " + std::to_string(image.height) + "x" +
          std::to_string(image.width) +
          " are too small for this model's convolutions and pools; choose another "
          "--model");
    }
  }
  return shape.channels;
}

std::vector<Layer> followed_by(
    std::vector<Layer> layers, const std::vector<Layer>& others) {
  layers.insert(layers.end(), others.begin(), others.end());
  return layers;
}

std::vector<Layer> net(const ModelOptions& o) {
  const std::vector<Layer> layers = {
      conv2d("conv1", channels_of(o), 32, 3),
      relu(),
      conv2d("conv2", 32, 64, 3),
      relu(),
      max_pool2d(2),
      dropout(0.25),
      flatten()};
  return followed_by(
      layers, {linear("fc1", features_of(layers, o), 128), relu(), dropout(0.5),
               linear("fc2", 128, o.num_classes), log_softmax()});
}

std::vector<Layer> convnet(const ModelOptions& o) {
  const std::vector<Layer> layers = {
      conv2d("cn1", channels_of(o), 16, 3),
      relu(),
      conv2d("cn2", 16, 32, 3),
      relu(),
      max_pool2d(2),
      dropout2d(0.10),
      flatten()};
  return followed_by(
      layers, {linear("fc1", features_of(layers, o), 64), relu(), dropout2d(0.25),
               linear("fc2", 64, o.num_classes), log_softmax()});
}

// The tutorial's summary shows fc1 with 64 inputs, which needs a third pool.
std::vector<Layer> net5x5(const ModelOptions& o) {
  const std::vector<Layer> layers = {
      conv2d("conv1", channels_of(o), 8, 5),
      max_pool2d(2),
      relu(),
      conv2d("conv2", 8, 16, 5),
      dropout2d(0.2),
      max_pool2d(2),
      relu(),
      max_pool2d(2),
      flatten()};
  return followed_by(
      layers, {linear("fc1", features_of(layers, o), 120), relu(),
               linear("fc2", 120, o.num_classes)});
}

std::vector<Layer> simplenet(const ModelOptions& o) {
  return {flatten(), linear("fc", features_of({flatten()}, o), o.num_classes)};
}

std::vector<Layer> lenet3x3(const ModelOptions& o) {
  const std::vector<Layer> layers = {
      conv2d("conv1", channels_of(o), 32, 3),
      relu(),
      max_pool2d(2),
      conv2d("conv2", 32, 64, 3),
      relu(),
      max_pool2d(2),
      flatten()};
  return followed_by(
      layers, {linear("fc1", features_of(layers, o), 128), relu(),
               linear("fc2", 128, o.num_classes)});
}

std::vector<Layer> convnet_bn(const ModelOptions& o) {
  const std::vector<Layer> layers = {
      conv2d("layer1.0", channels_of(o), 16, 5, 2),
      batch_norm2d("layer1.1", 16),
      relu(),
      max_pool2d(2),
      conv2d("layer2.0", 16, 32, 5, 2),
      batch_norm2d("layer2.1", 32),
      relu(),
      max_pool2d(2),
      flatten()};
  return followed_by(layers, {linear("fc", features_of(layers, o), o.num_classes)});
}

struct ModelFactory {
  ModelKind kind;
  std::vector<Layer> (*layers)(const ModelOptions&);
};
constexpr ModelFactory kFactories[] = {
    {ModelKind::net, &net},           {ModelKind::convnet, &convnet},
    {ModelKind::net5x5, &net5x5},     {ModelKind::simplenet, &simplenet},
    {ModelKind::lenet3x3, &lenet3x3}, {ModelKind::convnet_bn, &convnet_bn},
};

}  // namespace

std::vector<Layer> layers_of(ModelKind kind, const ModelOptions& options) {
  for (const auto& factory : kFactories) {
    if (factory.kind == kind) {
      return factory.layers(options);
    }
  }
  throw ConfigError(
      std::string("[model] model is ") + name_of(kind) +
      ", expected one of tandem's models; pass your own model to train() "
      "(examples/custom_model), or change --model");
}

std::unique_ptr<Model> make_model(ModelKind kind, const ModelOptions& options) {
  return make_layered_model(layers_of(kind, options), options);
}

}  // namespace tandem

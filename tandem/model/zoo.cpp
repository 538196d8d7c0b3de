// Models of the five tutorials (docs/strategies.md), with Python's names of parameters.

#include "tandem/base/error.h"
#include "tandem/model/model.h"

namespace tandem {

namespace {

// Size of an image after convolutions and pools.
class Shape {
 public:
  explicit Shape(const ModelOptions& options)
      : input_(options.input),
        height_(options.input.height),
        width_(options.input.width) {}

  Shape& conv(int64_t kernel, int64_t padding = 0) {
    height_ += 2 * padding - kernel + 1;
    width_ += 2 * padding - kernel + 1;
    return *this;
  }
  Shape& pool(int64_t kernel) {
    height_ /= kernel;
    width_ /= kernel;
    return *this;
  }
  int64_t features(int64_t channels) const {
    if (height_ < 1 || width_ < 1) {
      throw ConfigError(
          "[model] images of " + std::to_string(input_.height) + "x" +
          std::to_string(input_.width) +
          " are too small for this model's convolutions and pools; choose another "
          "--model");
    }
    return channels * height_ * width_;
  }

 private:
  InputShape input_;
  int64_t height_;
  int64_t width_;
};

std::vector<Layer> net(const ModelOptions& o) {
  const auto features = Shape(o).conv(3).conv(3).pool(2).features(64);
  return {
      conv2d("conv1", o.input.channels, 32, 3),
      relu(),
      conv2d("conv2", 32, 64, 3),
      relu(),
      max_pool2d(2),
      dropout(0.25),
      flatten(),
      linear("fc1", features, 128),
      relu(),
      dropout(0.5),
      linear("fc2", 128, o.num_classes),
      log_softmax()};
}

std::vector<Layer> convnet(const ModelOptions& o) {
  const auto features = Shape(o).conv(3).conv(3).pool(2).features(32);
  return {
      conv2d("cn1", o.input.channels, 16, 3),
      relu(),
      conv2d("cn2", 16, 32, 3),
      relu(),
      max_pool2d(2),
      dropout2d(0.10),
      flatten(),
      linear("fc1", features, 64),
      relu(),
      dropout2d(0.25),
      linear("fc2", 64, o.num_classes),
      log_softmax()};
}

// The tutorial's summary shows fc1 with 64 inputs, which needs a third pool.
std::vector<Layer> net5x5(const ModelOptions& o) {
  const auto features = Shape(o).conv(5).pool(2).conv(5).pool(2).pool(2).features(16);
  return {
      conv2d("conv1", o.input.channels, 8, 5),
      max_pool2d(2),
      relu(),
      conv2d("conv2", 8, 16, 5),
      dropout2d(0.2),
      max_pool2d(2),
      relu(),
      max_pool2d(2),
      flatten(),
      linear("fc1", features, 120),
      relu(),
      linear("fc2", 120, o.num_classes)};
}

std::vector<Layer> simplenet(const ModelOptions& o) {
  return {flatten(), linear("fc", Shape(o).features(o.input.channels), o.num_classes)};
}

std::vector<Layer> mymodel(const ModelOptions& o) {
  const auto features = Shape(o).conv(3).pool(2).conv(3).pool(2).features(64);
  return {
      conv2d("conv1", o.input.channels, 32, 3),
      relu(),
      max_pool2d(2),
      conv2d("conv2", 32, 64, 3),
      relu(),
      max_pool2d(2),
      flatten(),
      linear("fc1", features, 128),
      relu(),
      linear("fc2", 128, o.num_classes)};
}

std::vector<Layer> convnet_bn(const ModelOptions& o) {
  const auto features = Shape(o).pool(2).pool(2).features(32);
  return {
      conv2d("layer1.0", o.input.channels, 16, 5, 2),
      batch_norm2d("layer1.1", 16),
      relu(),
      max_pool2d(2),
      conv2d("layer2.0", 16, 32, 5, 2),
      batch_norm2d("layer2.1", 32),
      relu(),
      max_pool2d(2),
      flatten(),
      linear("fc", features, o.num_classes)};
}

struct ModelFactory {
  ModelKind kind;
  std::vector<Layer> (*layers)(const ModelOptions&);
};
constexpr ModelFactory kFactories[] = {
    {ModelKind::net, &net},         {ModelKind::convnet, &convnet},
    {ModelKind::net5x5, &net5x5},   {ModelKind::simplenet, &simplenet},
    {ModelKind::mymodel, &mymodel}, {ModelKind::convnet_bn, &convnet_bn},
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

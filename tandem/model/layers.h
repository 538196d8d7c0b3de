#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tandem {

/// Kinds of layers. A new kind needs:
/// * an enumerator and a factory in this header;
/// * the factory's definition and a LayerKindRow in layer_kinds.cpp;
/// * a kernel with a KernelRow in a source in exec/compiled/ops.
enum class LayerKind {
  conv2d,
  linear,
  batch_norm2d,
  relu,
  max_pool2d,
  dropout,
  dropout2d,
  flatten,
  log_softmax,
};
constexpr size_t kNumLayerKinds = static_cast<size_t>(LayerKind::log_softmax) + 1;

/// Options of one layer of a model that is a plain sequence of layers.
struct Layer {
  LayerKind kind;
  // Prefix of the parameters' names in the state dict, such as "conv1"; "" if the layer
  // has no parameters.
  std::string name;
  // Numbers of input and output channels or features.
  int64_t in = 0;
  int64_t out = 0;
  // Height and width of the window, in pixels.
  int64_t kernel = 0;
  int64_t stride = 1;
  int64_t padding = 0;
  // Probability with which dropout drops an element or a channel.
  double p = 0;
  // Index of the layer's node in the whole model, set by layers_in() (exec/compiled).
  // Dropout masks depend on this index.
  int64_t place = 0;
};

/// Returns a convolution with a square window, stride 1 and a bias.
Layer conv2d(
    const std::string& name, int64_t in, int64_t out, int64_t kernel,
    int64_t padding = 0);

/// Returns a fully connected layer with a bias.
Layer linear(const std::string& name, int64_t in, int64_t out);

/// PyTorch's defaults for batch norm: the weight of a new batch in the running
/// statistics, and the constant added to variances.
constexpr double kBatchNormMomentum = 0.1;
constexpr double kBatchNormEpsilon = 1e-5;

/// Returns a batch norm layer for images, with a weight, a bias and running statistics.
Layer batch_norm2d(const std::string& name, int64_t channels);

/// Returns a layer that computes max(x, 0).
Layer relu();

/// Returns a max pooling layer with square windows that do not overlap.
Layer max_pool2d(int64_t kernel);

/// Returns a layer that drops elements with probability `p`, from 0 to less than 1.
Layer dropout(double p);

/// Returns a layer that drops whole channels with probability `p`, from 0 to less than
/// 1. It drops elements of a two-dimensional input, as in PyTorch.
Layer dropout2d(double p);

/// Returns a layer that flattens each sample to one row of features.
Layer flatten();

/// Returns a layer that computes log(softmax(x)) over dimension 1, the classes.
Layer log_softmax();

}  // namespace tandem

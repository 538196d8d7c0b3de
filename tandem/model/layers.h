#pragma once

#include <cstdint>
#include <string>

namespace tandem {

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

/// One layer of a model that is a plain sequence: what it computes, not how.
struct Layer {
  LayerKind kind;
  // Prefix of its parameters in the state dict ("conv1"), or "".
  std::string name;
  // Channels or features.
  int64_t in = 0;
  int64_t out = 0;
  // Square windows.
  int64_t kernel = 0;
  int64_t stride = 1;
  int64_t padding = 0;
  // Dropout's probability.
  double p = 0;
  // Its place in the whole model, which dropout masks depend on. The model sets it.
  int64_t place = 0;
};

Layer conv2d(
    const std::string& name, int64_t in, int64_t out, int64_t kernel,
    int64_t padding = 0);
Layer linear(const std::string& name, int64_t in, int64_t out);
Layer batch_norm2d(const std::string& name, int64_t channels);
Layer relu();
Layer max_pool2d(int64_t kernel);
/// Dropout zeroes elements, dropout2d whole channels; on two-dimensional input
/// dropout2d zeroes elements, as PyTorch's does.
Layer dropout(double p);
Layer dropout2d(double p);
Layer flatten();
Layer log_softmax();

}  // namespace tandem

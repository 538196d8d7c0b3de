#include "tandem/model/layers.h"

namespace tandem {

namespace {

Layer plain(LayerKind kind) {
  Layer layer;
  layer.kind = kind;
  return layer;
}

Layer named(LayerKind kind, const std::string& name, int64_t in, int64_t out) {
  Layer layer = plain(kind);
  layer.name = name;
  layer.in = in;
  layer.out = out;
  return layer;
}

}  // namespace

Layer conv2d(
    const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t padding) {
  Layer layer = named(LayerKind::conv2d, name, in, out);
  layer.kernel = kernel;
  layer.padding = padding;
  return layer;
}

Layer linear(const std::string& name, int64_t in, int64_t out) {
  return named(LayerKind::linear, name, in, out);
}

Layer batch_norm2d(const std::string& name, int64_t channels) {
  return named(LayerKind::batch_norm2d, name, channels, channels);
}

Layer relu() {
  return plain(LayerKind::relu);
}

Layer max_pool2d(int64_t kernel) {
  Layer layer = plain(LayerKind::max_pool2d);
  layer.kernel = kernel;
  layer.stride = kernel;
  return layer;
}

Layer dropout(double p) {
  Layer layer = plain(LayerKind::dropout);
  layer.p = p;
  return layer;
}

Layer dropout2d(double p) {
  Layer layer = plain(LayerKind::dropout2d);
  layer.p = p;
  return layer;
}

Layer flatten() {
  return plain(LayerKind::flatten);
}

Layer log_softmax() {
  return plain(LayerKind::log_softmax);
}

}  // namespace tandem

#include "tandem/exec/device/cuda_ops.h"

#include "tandem/base/error.h"

namespace tandem {

namespace {

bool is_dropout(const Layer& layer) {
  return layer.kind == LayerKind::dropout || layer.kind == LayerKind::dropout2d;
}

// A linear layer's gradient goes where its output is above 0: that says what dropout
// took only behind a ReLU.
bool takes_dropout(const FusedLayer& fused) {
  const bool is_one = fused.layer.kind == LayerKind::max_pool2d || fused.pool ||
                      (fused.layer.kind == LayerKind::linear && fused.relu);
  return is_one && !fused.dropout;
}

bool takes_pool(const FusedLayer& fused) {
  return fused.layer.kind == LayerKind::conv2d && !fused.pool;
}

}  // namespace

std::vector<BoundLayer> fuse_for_cuda(
    const std::vector<BoundLayer>& layers, bool training) {
  std::vector<BoundLayer> fused;
  for (const auto& bound : layers) {
    const Layer& layer = bound.fused.layer;
    if (is_dropout(layer) && !training) {
      continue;
    }
    if (layer.kind == LayerKind::dropout && !fused.empty() &&
        takes_dropout(fused.back().fused)) {
      fused.back().fused.dropout = layer;
    } else if (
        layer.kind == LayerKind::max_pool2d && !fused.empty() &&
        takes_pool(fused.back().fused)) {
      fused.back().fused.pool = true;
      fused.back().fused.relu |= bound.fused.relu;
    } else {
      fused.push_back(bound);
    }
  }
  return fused;
}

std::unique_ptr<CudaOp> make_cuda_op(
    const BoundLayer& layer, at::ScalarType dtype, cuda::Products products,
    bool training) {
  switch (layer.fused.layer.kind) {
    case LayerKind::conv2d:
      return make_cuda_convolution(layer, dtype, products, training);
    case LayerKind::linear:
      return make_cuda_linear(layer, dtype, products);
    case LayerKind::batch_norm2d:
      return make_cuda_batch_norm(layer, dtype, training);
    case LayerKind::max_pool2d:
      return make_cuda_max_pool(layer, dtype);
    case LayerKind::dropout:
    case LayerKind::dropout2d:
      return make_cuda_dropout(layer, dtype);
    case LayerKind::flatten:
      return make_cuda_flatten();
    default:
      throw ConfigError(
          "[exec] executor cuda cannot run this model: " +
          cuda_layer_obstacle(layer.fused) + "; use --executor eager");
  }
}

std::string cuda_layer_obstacle(const FusedLayer& fused) {
  const Layer& layer = fused.layer;
  switch (layer.kind) {
    case LayerKind::conv2d:
      if (layer.kernel < 1 || layer.kernel > 5 || layer.padding < 0 ||
          layer.padding > 2 || layer.stride != 1) {
        return "convolution " + layer.name + " has a kernel of " +
               std::to_string(layer.kernel) + ", a padding of " +
               std::to_string(layer.padding) + " and a stride of " +
               std::to_string(layer.stride) +
               ", and its kernels are for 1 to 5, 0 to 2, and 1";
      }
      return "";
    case LayerKind::max_pool2d:
      return layer.kernel == 2 && layer.stride == 2
                 ? ""
                 : "a max pool has windows of " + std::to_string(layer.kernel) +
                       ", and its kernel is for 2";
    case LayerKind::dropout:
    case LayerKind::dropout2d:
      return layer.p >= 0 && layer.p < 1
                 ? ""
                 : "a dropout probability is " + std::to_string(layer.p) +
                       ", and possible are 0 to less than 1";
    case LayerKind::relu:
      return "a ReLU stands behind no convolution, linear layer, batch norm or max "
             "pool, and before no max pool";
    case LayerKind::log_softmax:
      return "a log-softmax is not the last layer before a loss of classes";
    default:
      return "";
  }
}

}  // namespace tandem

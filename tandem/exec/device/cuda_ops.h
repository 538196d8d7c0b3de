#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "tandem/core/batch_record.h"
#include "tandem/exec/bound_layers.h"
#include "tandem/kernels/cuda/products.h"
#include "tandem/kernels/cuda/stream.h"
#include "tandem/kernels/cuda/workspace.h"

namespace tandem {

/// What the kernels of a pass are started with.
struct CudaPass {
  // On the device.
  const BatchRecord* record = nullptr;
  // On the device: for each kernel as much as its operation has asked for.
  cuda::Workspace<void> workspace;
  cuda::Stream stream = nullptr;
};

/// The layers of training, where a max pool, or a linear layer with a ReLU, takes the
/// dropout of elements behind it along, or those of evaluation, without dropout; in
/// both a convolution takes the max pool behind it along.
std::vector<BoundLayer> fuse_for_cuda(
    const std::vector<BoundLayer>& layers, bool training);

/// A layer, planned for one size of batch, as kernels of kernels/cuda. Tensors are
/// float32 or float64, as the model's, contiguous and on the device; after
/// plan_forward() and plan_backward() none is allocated. Kernels are put in the pass's
/// stream, and nothing waits for them. Not thread-safe.
class CudaOp {
 public:
  virtual ~CudaOp() = default;

  /// Returns where the output will be: of some operations, the input's own memory.
  /// Throws ConfigError for an input that the layer does not take.
  virtual at::Tensor plan_forward(const at::Tensor& input) = 0;

  /// Returns where the input's gradient will be, which may be where `grad_output` is;
  /// undefined unless `wants_input_grad`.
  virtual at::Tensor plan_backward(
      const at::Tensor& grad_output, bool wants_input_grad) = 0;

  /// What kernels need at CudaPass::workspace; its values are bytes.
  virtual cuda::WorkspaceSize workspace() const {
    return {};
  }

  virtual void forward(const CudaPass& pass) = 0;

  /// Writes the input's gradient, where it is wanted, and parameters' gradients into
  /// the arena; `accumulate`: adds those.
  virtual void backward(const CudaPass& pass, bool accumulate) = 0;
};

/// Throws ConfigError for a layer that cuda_layer_obstacle() names.
std::unique_ptr<CudaOp> make_cuda_op(
    const BoundLayer& layer, at::ScalarType dtype, cuda::Products products,
    bool training);

/// Those that it chooses from.
std::unique_ptr<CudaOp> make_cuda_convolution(
    const BoundLayer& layer, at::ScalarType dtype, cuda::Products products,
    bool training);
std::unique_ptr<CudaOp> make_cuda_linear(
    const BoundLayer& layer, at::ScalarType dtype, cuda::Products products);
std::unique_ptr<CudaOp> make_cuda_batch_norm(
    const BoundLayer& layer, at::ScalarType dtype, bool training);
std::unique_ptr<CudaOp> make_cuda_max_pool(
    const BoundLayer& layer, at::ScalarType dtype);
std::unique_ptr<CudaOp> make_cuda_dropout(
    const BoundLayer& layer, at::ScalarType dtype);
std::unique_ptr<CudaOp> make_cuda_flatten();

/// Why there are no kernels for a layer, in a few words; "" where there are.
std::string cuda_layer_obstacle(const FusedLayer& layer);

}  // namespace tandem

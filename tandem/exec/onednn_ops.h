#pragma once

#include <ATen/core/Tensor.h>

#include <dnnl.hpp>
#include <functional>
#include <memory>
#include <string>

#include "tandem/model/dropout.h"
#include "tandem/model/layers.h"

namespace tandem {

/// What the operations of one plan share.
struct OnednnContext {
  dnnl::engine engine;
  dnnl::stream stream;
  // Whether there is a backward.
  bool training = true;
};

/// What changes from one pass to the next.
struct OnednnPass {
  SampleContext samples;
  // Parameters differ from those of another version: packed copies are stale.
  int64_t parameters_version = 0;
};

/// A layer's tensors: parameters, the slices of the gradient arena that belong to
/// them, and buffers. Undefined where the layer has none; float32, contiguous.
struct OnednnTensors {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor weight_grad;
  at::Tensor bias_grad;
  at::Tensor running_mean;
  at::Tensor running_var;
  at::Tensor num_batches;
};

/// A layer, compiled for one input size and layout. Memory is planned once: after
/// plan_forward() and plan_backward() nothing is allocated. Not thread-safe.
class OnednnOp {
 public:
  virtual ~OnednnOp() = default;

  /// Where the output will be, in the layout that suits the operation.
  virtual dnnl::memory plan_forward(const dnnl::memory& input) = 0;

  /// `grad_output` has any layout. Returns where the input's gradient will be; an
  /// empty memory unless `wants_input_grad`.
  virtual dnnl::memory plan_backward(
      const dnnl::memory& grad_output, bool wants_input_grad) = 0;

  virtual void forward(const OnednnPass& pass) = 0;

  /// Adds parameters' gradients into the arena.
  virtual void backward_parameters() {}
  virtual void backward_input() = 0;
};

/// Compiles a layer. `fused_relu`: the ReLU behind a convolution or linear layer is
/// part of it.
///
/// Returns null for a layer that has no compiled form.
std::unique_ptr<OnednnOp> make_onednn_op(
    const Layer& layer, bool fused_relu, const OnednnTensors& tensors,
    const OnednnContext& context);

/// `dims` of float32 in rows, at `data` (null: memory of its own).
dnnl::memory plain_memory(
    const dnnl::memory::dims& dims, const dnnl::engine& engine, float* data = nullptr);

/// A copy into another layout, planned once; nothing where the layout is the same.
class LayoutChange {
 public:
  LayoutChange() = default;
  /// Returns where the values will be in layout `wanted`: `from` itself when it fits.
  dnnl::memory plan(
      const dnnl::memory& from, const dnnl::memory::desc& wanted,
      const OnednnContext& context);
  void run(const dnnl::stream& stream);

 private:
  dnnl::memory from_;
  dnnl::memory to_;
  dnnl::reorder reorder_;
};

}  // namespace tandem

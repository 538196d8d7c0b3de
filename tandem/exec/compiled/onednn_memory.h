#pragma once

#include <ATen/core/Tensor.h>

#include <dnnl.hpp>
#include <utility>
#include <vector>

#include "tandem/core/bf16.h"
#include "tandem/core/numerics.h"
#include "tandem/exec/compiled/memory_pool.h"

namespace tandem {

using OnednnType = dnnl::memory::data_type;
using OnednnDims = dnnl::memory::dims;

/// Settings that are common to all operations of one plan (executor.cpp).
struct OnednnContext {
  dnnl::engine engine;
  dnnl::stream stream;
  // True if a backward pass follows.
  bool training = true;
  // Formats of products and roundings. Sums, parameters and their gradients are always
  // float32.
  Numerics numerics;
  // Gives memory to the outputs, gradients and scratch memory of operations; null: each
  // allocates its own.
  MemoryPool* pool = nullptr;

  /// Returns memory for an output or a gradient.
  dnnl::memory make(const dnnl::memory::desc& desc) const {
    return pool == nullptr ? dnnl::memory(desc, engine) : pool->make(desc, engine);
  }

  /// Returns the type of the values that convolutions and matrix products read.
  OnednnType product() const {
    return numerics.product == at::kBFloat16 ? OnednnType::bf16 : OnednnType::f32;
  }
};

// Functions that return the dimensions and the data type of a memory. The getters of
// oneDNN 2 and oneDNN 3 have different names.
OnednnDims dims_of(const dnnl::memory& memory);
OnednnType type_of(const dnnl::memory& memory);

/// Returns the size of `memory` in elements, including padded channels.
int64_t elements_of(const dnnl::memory& memory);

template <typename T>
T* data_of(const dnnl::memory& memory) {
  return static_cast<T*>(memory.get_data_handle());
}

/// Calls `body(T{})`. T is the type of the values in `memory`: float or Bf16.
template <typename Body>
void with_type(const dnnl::memory& memory, const Body& body) {
  if (type_of(memory) == OnednnType::bf16) {
    body(Bf16{});
  } else {
    body(float{});
  }
}

/// Returns a description of memory in row-major order, which is LibTorch's contiguous
/// layout.
dnnl::memory::desc plain_desc(
    const OnednnDims& dims, OnednnType type = OnednnType::f32);
/// Returns a description that lets the primitive choose the layout.
dnnl::memory::desc any_desc(const OnednnDims& dims, OnednnType type);

/// Layout of images that custom loops can read.
struct PixelLayout {
  dnnl::memory::format_tag tag;
  // Number of channels of a pixel that are adjacent in memory, a multiple of 8. In the
  // layout nhwc, these are all channels.
  int64_t lanes;
};
/// Returns the layout of `memory` if custom loops can read it. Otherwise returns a
/// layout to which `memory` must be copied.
PixelLayout pixel_layout_for(const dnnl::memory& memory);

/// Returns memory in row-major order at `data`. If `data` is null, allocates memory
/// that is aligned to 64 bytes.
dnnl::memory plain_memory(
    const OnednnDims& dims, const dnnl::engine& engine, void* data = nullptr,
    OnednnType type = OnednnType::f32);
/// Returns a dnnl::memory that refers to the values of a contiguous float32 tensor. The
/// tensor still owns the values.
dnnl::memory plain_over(const at::Tensor& tensor, const dnnl::engine& engine);

/// Returns a tensor that shares row-major float32 memory and keeps it alive.
at::Tensor tensor_over(const dnnl::memory& memory);

/// A primitive with its arguments. The constructor binds the arguments, so run()
/// allocates no memory.
class BoundPrimitive {
 public:
  using Arguments = std::vector<std::pair<int, dnnl::memory>>;

  BoundPrimitive() = default;
  BoundPrimitive(dnnl::primitive primitive, Arguments arguments);

  /// Runs the primitive; does nothing if none is bound.
  void run(const dnnl::stream& stream) const;

 private:
  dnnl::primitive primitive_;
  Arguments arguments_;
  std::vector<dnnl_exec_arg_t> bound_;
};

/// Copies memory into another layout or type. Does nothing if layout and type are
/// equal.
class LayoutChange {
 public:
  LayoutChange() = default;
  /// Plans the copy of `from` into the layout `wanted` and returns the copy's memory.
  /// Returns `from` if it already has this layout.
  dnnl::memory plan(
      const dnnl::memory& from, const dnnl::memory::desc& wanted,
      const OnednnContext& context);
  void run(const dnnl::stream& stream) const {
    reorder_.run(stream);
  }

 private:
  BoundPrimitive reorder_;
};

/// Output and input gradient of a layer with weights, by primitives of oneDNN. The
/// primitives read copies of the weights in the layouts and types that they prefer.
class PackedProduct {
 public:
  /// Plans the output. Returns `input` in the layout that the primitive reads.
  dnnl::memory plan_forward(
      const dnnl::primitive_desc& primitive, const dnnl::memory& input,
      const at::Tensor& weight, const at::Tensor& bias, const dnnl::memory& output,
      const OnednnContext& context);
  /// Plans the input's gradient, and returns its memory.
  dnnl::memory plan_backward(
      const dnnl::primitive_desc& primitive, const dnnl::memory& grad_output,
      const at::Tensor& weight, const OnednnContext& context);

  /// Computes the output. Copies the weights again if `parameters_version` has changed
  /// since the last call.
  void forward(int64_t parameters_version, const dnnl::stream& stream);
  void backward(const dnnl::stream& stream) const;

 private:
  LayoutChange input_change_;
  LayoutChange grad_change_;
  LayoutChange forward_weights_;
  LayoutChange backward_weights_;
  BoundPrimitive forward_;
  BoundPrimitive backward_;
  int64_t version_ = -1;
};

/// Returns the attributes of a primitive, with a fused ReLU if `relu` is true.
dnnl::primitive_attr attributes_with_relu(bool relu);

/// Copies a parameter's gradient from a primitive's layout into the gradient arena.
class GradientStore {
 public:
  void plan(
      const dnnl::memory& from, const at::Tensor& gradient,
      const OnednnContext& context);
  /// Overwrites the gradient in the arena, or adds to it if `accumulate` is true.
  void run(const dnnl::stream& stream, bool accumulate) const {
    (accumulate ? add_ : set_).run(stream);
  }

 private:
  BoundPrimitive set_;
  BoundPrimitive add_;
};

}  // namespace tandem

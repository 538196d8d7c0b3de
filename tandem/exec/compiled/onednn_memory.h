#pragma once

#include <ATen/core/Tensor.h>

#include <dnnl.hpp>
#include <utility>
#include <vector>

#include "tandem/core/numerics.h"

namespace tandem {

using OnednnType = dnnl::memory::data_type;
using OnednnDims = dnnl::memory::dims;

/// What the operations of one plan share.
struct OnednnContext {
  dnnl::engine engine;
  dnnl::stream stream;
  // Whether there is a backward.
  bool training = true;
  // Storage is float32: sums, parameters and their gradients.
  Numerics numerics;

  /// The type that convolutions and matrix products read, and of values between layers.
  OnednnType product() const {
    return numerics.product == at::kBFloat16 ? OnednnType::bf16 : OnednnType::f32;
  }
};

// The spelling of these differs between oneDNN 2 and 3.
OnednnDims dims_of(const dnnl::memory& memory);
OnednnType type_of(const dnnl::memory& memory);

/// The size of the buffer in elements, padded channels included.
int64_t elements_of(const dnnl::memory& memory);

template <typename T>
T* data_of(const dnnl::memory& memory) {
  return static_cast<T*>(memory.get_data_handle());
}

/// A description in rows, as LibTorch has them.
dnnl::memory::desc plain_desc(
    const OnednnDims& dims, OnednnType type = OnednnType::f32);
/// A description that leaves the layout to the primitive.
dnnl::memory::desc any_desc(const OnednnDims& dims, OnednnType type);

/// The layout of images that our own loops read: as `memory` has it, if they can read
/// that, otherwise one that they can.
struct PixelLayout {
  dnnl::memory::format_tag tag;
  // The neighbouring channels of a pixel, a multiple of 8: all of them in nhwc.
  int64_t lanes;
};
PixelLayout pixel_layout_for(const dnnl::memory& memory);

/// `dims` in rows, at `data` (null: memory of its own, 64-byte aligned).
dnnl::memory plain_memory(
    const OnednnDims& dims, const dnnl::engine& engine, void* data = nullptr,
    OnednnType type = OnednnType::f32);
/// The memory of a contiguous float32 tensor.
dnnl::memory plain_over(const at::Tensor& tensor, const dnnl::engine& engine);

/// A primitive with its arguments, bound once: running it allocates nothing.
class BoundPrimitive {
 public:
  using Arguments = std::vector<std::pair<int, dnnl::memory>>;

  BoundPrimitive() = default;
  BoundPrimitive(dnnl::primitive primitive, Arguments arguments);

  /// Does nothing where nothing is bound.
  void run(const dnnl::stream& stream) const;

 private:
  dnnl::primitive primitive_;
  Arguments arguments_;
  std::vector<dnnl_exec_arg_t> bound_;
};

/// A copy into another layout or type, planned once; does nothing where both are the
/// same.
class LayoutChange {
 public:
  LayoutChange() = default;
  /// Returns where the values will be as `wanted`: `from` itself when it fits.
  dnnl::memory plan(
      const dnnl::memory& from, const dnnl::memory::desc& wanted,
      const OnednnContext& context);
  void run(const dnnl::stream& stream) const {
    reorder_.run(stream);
  }

 private:
  BoundPrimitive reorder_;
};

/// Copies of parameters in the layouts and types that primitives prefer.
class PackedCopies {
 public:
  /// Returns where the copy will be: the parameter itself when it fits.
  dnnl::memory plan(
      const at::Tensor& parameter, const dnnl::memory::desc& wanted,
      const OnednnContext& context);
  /// Copies again unless the parameters are still of this version.
  void refresh(int64_t parameters_version, const dnnl::stream& stream);

 private:
  std::vector<LayoutChange> changes_;
  int64_t version_ = -1;
};

/// The attributes of a primitive, with a ReLU after it in the same pass, or without
/// one.
dnnl::primitive_attr attributes_with_relu(bool relu);

/// Brings a gradient from a primitive's layout into the arena.
class GradientStore {
 public:
  void plan(
      const dnnl::memory& from, const at::Tensor& gradient,
      const OnednnContext& context);
  /// Adds to what the arena holds, or replaces it.
  void run(const dnnl::stream& stream, bool accumulate) const {
    (accumulate ? add_ : set_).run(stream);
  }

 private:
  BoundPrimitive set_;
  BoundPrimitive add_;
};

}  // namespace tandem

#pragma once

#include <ATen/ops/empty.h>

#include <string>
#include <type_traits>

#include "tandem/base/error.h"
#include "tandem/exec/device/cuda_ops.h"
#include "tandem/kernels/cuda/relu_and_dropout.h"

namespace tandem {

// What the files of operations have in common.

inline at::Tensor empty_as(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return at::empty(sizes, tensor.options());
}

inline at::Tensor empty_as(const at::Tensor& tensor) {
  return empty_as(tensor, tensor.sizes());
}

template <typename T>
T* data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<std::remove_const_t<T>>() : nullptr;
}

inline int64_t values_of_sample(const at::Tensor& x) {
  int64_t values = 1;
  for (int64_t dim = 1; dim < x.dim(); ++dim) {
    values *= x.size(dim);
  }
  return values;
}

/// Throws ConfigError unless a layer gets what it takes: its kernels would read what is
/// not there.
inline void check_input(
    const std::string& layer, const char* of, int64_t found, int64_t expected) {
  if (found != expected) {
    throw ConfigError(
        "[exec] layer " + layer + " takes " + std::to_string(expected) + " " + of +
        ", and gets " + std::to_string(found) +
        "; change the model, or the size of images");
  }
}

inline void check_images(const std::string& layer, const at::Tensor& x) {
  check_input(layer, "dimensions, of images", x.dim(), 4);
}

/// Of values of `value_bytes` bytes each.
inline cuda::WorkspaceSize in_bytes(cuda::WorkspaceSize size, size_t value_bytes) {
  size.values *= static_cast<int64_t>(value_bytes);
  return size;
}

template <typename T>
cuda::Workspace<T> workspace_of(const CudaPass& pass) {
  return {static_cast<T*>(pass.workspace.values), pass.workspace.counters};
}

/// What a layer takes along behind itself.
inline cuda::ReluAndDropout behind(const FusedLayer& fused, const CudaPass& pass) {
  cuda::ReluAndDropout behind;
  behind.relu = fused.relu;
  if (fused.dropout) {
    behind.place = &pass.record->place;
    behind.layer = fused.dropout->place;
    behind.p = fused.dropout->p;
  }
  return behind;
}

/// What is the same in all that are not in place.
class OwnOutput : public CudaOp {
 public:
  at::Tensor plan_backward(
      const at::Tensor& grad_output, bool wants_input_grad) override {
    grad_output_ = grad_output;
    grad_input_ = wants_input_grad ? empty_as(input_) : at::Tensor();
    return grad_input_;
  }

 protected:
  at::Tensor input_;
  at::Tensor output_;
  at::Tensor grad_output_;
  at::Tensor grad_input_;
};

}  // namespace tandem

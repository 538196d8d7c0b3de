#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>

namespace tandem {

/// Which samples a forward pass sees, for the dropout masks.
struct SampleContext {
  uint64_t seed = 0;
  int64_t epoch = 0;
  // Sample i of the batch has position first_position + i * position_stride in
  // its epoch (data/sampler.h).
  int64_t first_position = 0;
  int64_t position_stride = 1;
};

/// A dropout mask: 0 with probability p, else 1 / (1 - p).
///
/// A pure function of (seed, epoch, position of the sample, layer, element),
/// from the counter-based generator Philox4x32-10 (Salmon et al., "Parallel
/// random numbers: as easy as 1, 2, 3", SC 2011). So neither the number of
/// ranks, nor how a batch is cut, nor a resume changes it. Each element takes 16
/// bits, so p is rounded to a multiple of 1/65536.
///
/// That holds on the CPU. Elsewhere LibTorch's generator of the device draws the mask,
/// seeded by (seed, epoch, first position, layer): a run is repeatable and can be
/// resumed, but the mask differs from the CPU's and depends on the number of ranks and
/// on how a batch is cut.
///
/// Shape: `num_samples` x `elements`. `options`: float32 or float64, and the device.
at::Tensor dropout_mask(
    const SampleContext& context, int64_t layer, int64_t num_samples, int64_t elements,
    double p, const at::TensorOptions& options);

/// The same as bytes, 1 where the mask is not 0, into `keep`: `num_samples` x
/// `elements`.
void dropout_keep(
    const SampleContext& context, int64_t layer, int64_t num_samples, int64_t elements,
    double p, uint8_t* keep);

}  // namespace tandem

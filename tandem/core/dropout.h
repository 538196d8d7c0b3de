#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>

namespace tandem {

/// Values that determine the random numbers of a forward pass.
struct SampleContext {
  uint64_t seed = 0;
  int64_t epoch = 0;
  // Sample i of the batch has position first_position + i * position_stride in its
  // epoch (data/sampler.h).
  int64_t first_position = 0;
  int64_t position_stride = 1;
  // Position of the first sample of the optimizer step, over all ranks and
  // micro-batches. It determines random numbers that belong to no sample.
  int64_t step_position = 0;
};

/// Returns a dropout mask: 0 with probability p, otherwise 1 / (1 - p).
///
/// On the CPU the mask is a pure function of (seed, epoch, position of the sample,
/// layer, element). It does not depend on the number of ranks or on the division of a
/// batch, and it is the same in a resumed run. The counter-based generator
/// Philox4x32-10 draws 16 bits per element, so p is rounded to a multiple of 1/65536.
///
/// On other devices, LibTorch's generator draws the mask, seeded by (seed, epoch, first
/// position, layer). Runs are repeatable and can be resumed. But the mask differs from
/// the CPU's mask, and it depends on the number of ranks and on the division of a
/// batch.
///
/// The mask has the shape `num_samples` x `elements`. `options` sets its type, float32
/// or float64, and its device. On the CPU, throws ConfigError unless 0 <= p < 1.
///
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
at::Tensor dropout_mask(
    const SampleContext& context, int64_t layer, int64_t num_samples, int64_t elements,
    double p, const at::TensorOptions& options);

/// Writes the CPU's mask as bytes into `keep`, `num_samples` x `elements`: 0 for an
/// element that is dropped, otherwise 1.
void dropout_keep(
    const SampleContext& context, int64_t layer, int64_t num_samples, int64_t elements,
    double p, uint8_t* keep);

/// Returns uniform random numbers in (0, 1), of shape `num_samples` x `elements`,
/// float64, on the CPU. They are a pure function of (seed, epoch, position of the
/// sample, layer, element), as the masks on the CPU are. The generator is the same, and
/// each number uses 32 bits.
at::Tensor uniform_numbers(
    const SampleContext& context, int64_t layer, int64_t num_samples, int64_t elements);

}  // namespace tandem

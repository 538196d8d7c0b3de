#pragma once

#include "tandem/core/batch_place.h"
#include "tandem/core/dropout_numbers.h"
#include "tandem/kernels/cuda/device.h"

namespace tandem::cuda {

/// What decides about elements of a batch (model/dropout.h), for kernels in which a
/// thread goes through the eight elements of one block of Philox.
struct DropoutDecisions {
  // Null: all are kept.
  const BatchPlace* place;
  int64_t layer;
  int64_t num_samples;
  int64_t elements;
  uint32_t threshold;

  // Blocks of Philox for a sample: whole groups.
  __host__ __device__ int64_t blocks_per_sample() const {
    return (elements + kDropoutGroup - 1) / kDropoutGroup * kDropoutLanes;
  }
  int64_t threads() const {
    return num_samples * blocks_per_sample();
  }
};

/// The numbers of one block of Philox of a sample, two in each word; `of.place` is not
/// null.
struct DropoutNumbers {
  // Of these all elements are kept.
  uint32_t words[4] = {~0u, ~0u, ~0u, ~0u};

  DropoutNumbers() = default;
  __device__ __forceinline__
  DropoutNumbers(const DropoutDecisions& of, int64_t sample, int64_t block) {
    const BatchPlace& place = *of.place;
    const auto counter = dropout_counter(
        place.seed, place.epoch, place.first_position + sample * place.position_stride,
        of.layer);
    words[0] = static_cast<uint32_t>(block);
    words[1] = counter.position;
    words[2] = counter.epoch;
    words[3] = counter.layer;
    uint32_t key0 = counter.key0;
    uint32_t key1 = counter.key1;
    for (int round = 0; round < kPhiloxRounds; ++round) {
      philox_round(words[0], words[1], words[2], words[3], key0, key1);
      philox_next_key(key0, key1);
    }
  }

  // Of the block's eight elements.
  __device__ __forceinline__ bool keep(int number, uint32_t threshold) const {
    // Which word may be known when the program runs only: no array in memory for that.
    const uint32_t word = number % 2 == 0 ? (number % 4 == 0 ? words[0] : words[2])
                                          : (number % 4 == 1 ? words[1] : words[3]);
    return (number < 4 ? word & 0xFFFF : word >> 16) >= threshold;
  }
};

/// Which block of Philox decides about an element, and by which of its numbers.
__device__ __forceinline__ int64_t dropout_block_of(int64_t element) {
  return element / kDropoutGroup * kDropoutLanes + element % kDropoutLanes;
}
__device__ __forceinline__ int dropout_number_of(int64_t element) {
  return static_cast<int>(element % kDropoutGroup / kDropoutLanes);
}

/// Whether one element is kept.
__device__ __forceinline__ bool is_kept(
    const DropoutDecisions& of, int64_t sample, int64_t element) {
  if (of.place == nullptr) {
    return true;
  }
  const DropoutNumbers numbers(of, sample, dropout_block_of(element));
  return numbers.keep(dropout_number_of(element), of.threshold);
}

/// Calls body(sample, element, is_kept) for the elements of thread number `thread`.
template <typename Body>
__device__ __forceinline__ void for_dropout_block(
    const DropoutDecisions& of, int64_t thread, Body&& body) {
  const int64_t per_sample = of.blocks_per_sample();
  const int64_t sample = thread / per_sample;
  if (sample >= of.num_samples) {
    return;
  }
  const int64_t block = thread % per_sample;
  DropoutNumbers numbers;
  if (of.place != nullptr) {
    numbers = DropoutNumbers(of, sample, block);
  }
  const int64_t lanes = kDropoutLanes;
  const int64_t first = block / lanes * kDropoutGroup + block % lanes;
  TANDEM_UNROLL
  for (int number = 0; number < 8; ++number) {
    const int64_t element = first + number * lanes;
    if (element >= of.elements) {
      return;
    }
    body(sample, element, numbers.keep(number, of.threshold));
  }
}

}  // namespace tandem::cuda

#include "tandem/kernels/cuda/dropout.h"

#include "tandem/core/dropout_numbers.h"
#include "tandem/kernels/cuda/device.h"

namespace tandem::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kLanes = kDropoutLanes;

// T: of the mask. `in`: what is multiplied by it; null: nothing.
template <typename T>
struct Masked {
  const BatchPlace* place;
  int64_t layer;
  int64_t num_samples;
  int64_t elements;
  uint32_t threshold;
  T scale;
  const T* in;
  T* out;

  // Blocks of Philox for a sample: whole groups.
  __host__ __device__ int64_t blocks_per_sample() const {
    return (elements + kDropoutGroup - 1) / kDropoutGroup * kLanes;
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads) dropout_kernel(Masked<T> masked) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t per_sample = masked.blocks_per_sample();
  const int64_t sample = thread / per_sample;
  if (sample >= masked.num_samples) {
    return;
  }
  const int64_t block = thread % per_sample;
  const BatchPlace& place = *masked.place;
  const auto counter = dropout_counter(
      place.seed, place.epoch, place.first_position + sample * place.position_stride,
      masked.layer);
  uint32_t words[4] = {
      static_cast<uint32_t>(block), counter.position, counter.epoch, counter.layer};
  uint32_t key0 = counter.key0;
  uint32_t key1 = counter.key1;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    philox_round(words[0], words[1], words[2], words[3], key0, key1);
    philox_next_key(key0, key1);
  }
  const int64_t first = block / kLanes * kDropoutGroup + block % kLanes;
  for (int64_t number = 0; number < 8; ++number) {
    const int64_t element = first + number * kLanes;
    if (element >= masked.elements) {
      return;
    }
    const uint32_t word = words[number % 4];
    const uint32_t bits = number < 4 ? word & 0xFFFF : word >> 16;
    const T factor = bits >= masked.threshold ? masked.scale : T(0);
    const int64_t at = sample * masked.elements + element;
    masked.out[at] =
        masked.in == nullptr ? factor : static_cast<T>(masked.in[at] * factor);
  }
}

template <typename T>
void launch_dropout(const Masked<T>& masked, Stream stream) {
  const int64_t threads = masked.num_samples * masked.blocks_per_sample();
  if (threads > 0) {
    launch(
        "dropout", dropout_kernel<T>, blocks_of(threads, kThreads), kThreads, 0, stream,
        masked);
  }
}

}  // namespace

template <typename T>
void apply_dropout(
    const BatchPlace* place, int64_t layer, int64_t num_samples, int64_t elements,
    double p, const T* in, T* out, Stream stream) {
  launch_dropout<T>(
      {place, layer, num_samples, elements, dropout_threshold(p),
       static_cast<T>(1 / (1 - p)), in, out},
      stream);
}

template <typename T>
void dropout_mask(
    const BatchPlace* place, int64_t layer, int64_t num_samples, int64_t elements,
    double p, T* mask, Stream stream) {
  apply_dropout<T>(place, layer, num_samples, elements, p, nullptr, mask, stream);
}

void dropout_keep(
    const BatchPlace* place, int64_t layer, int64_t num_samples, int64_t elements,
    double p, uint8_t* keep, Stream stream) {
  launch_dropout<uint8_t>(
      {place, layer, num_samples, elements, dropout_threshold(p), 1, nullptr, keep},
      stream);
}

template void apply_dropout(
    const BatchPlace*, int64_t, int64_t, int64_t, double, const float*, float*, Stream);
template void apply_dropout(
    const BatchPlace*, int64_t, int64_t, int64_t, double, const double*, double*,
    Stream);
template void dropout_mask(
    const BatchPlace*, int64_t, int64_t, int64_t, double, float*, Stream);
template void dropout_mask(
    const BatchPlace*, int64_t, int64_t, int64_t, double, double*, Stream);

}  // namespace tandem::cuda

#include "tandem/kernels/cuda/dropout.h"

#include "tandem/kernels/cuda/dropout_block.h"

namespace tandem::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kChannelThreads = 128;

// T: of the mask. `in`: what is multiplied by it; null: nothing.
template <typename T>
struct Masked {
  DropoutDecisions decisions;
  T scale;
  const T* in;
  T* out;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) dropout_kernel(Masked<T> masked) {
  for_dropout_block(
      masked.decisions, int64_t{blockIdx.x} * kThreads + threadIdx.x,
      [&](int64_t sample, int64_t element, bool is_kept) {
        const T factor = is_kept ? masked.scale : T(0);
        const int64_t at = sample * masked.decisions.elements + element;
        masked.out[at] =
            masked.in == nullptr ? factor : static_cast<T>(masked.in[at] * factor);
      });
}

template <typename T>
void launch_dropout(const Masked<T>& masked, Stream stream) {
  const int64_t threads = masked.decisions.threads();
  if (threads > 0) {
    launch(
        "dropout", dropout_kernel<T>, blocks_of(threads, kThreads), kThreads, 0, stream,
        masked);
  }
}

// Elements are channels.
template <typename T>
__global__ void __launch_bounds__(kChannelThreads)
    channel_dropout_kernel(Masked<T> masked, int64_t area) {
  const int64_t channels = masked.decisions.elements;
  const int64_t sample = blockIdx.x / channels;
  const int64_t channel = blockIdx.x % channels;
  const T factor = is_kept(masked.decisions, sample, channel) ? masked.scale : T(0);
  for (int64_t i = threadIdx.x; i < area; i += kChannelThreads) {
    const int64_t at = int64_t{blockIdx.x} * area + i;
    masked.out[at] = masked.in[at] * factor;
  }
}

}  // namespace

template <typename T>
void apply_dropout(
    const BatchPlace* place, int64_t layer, int64_t num_samples, int64_t elements,
    double p, const T* in, T* out, Stream stream) {
  launch_dropout<T>(
      {{place, layer, num_samples, elements, dropout_threshold(p)},
       static_cast<T>(1 / (1 - p)),
       in,
       out},
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
      {{place, layer, num_samples, elements, dropout_threshold(p)}, 1, nullptr, keep},
      stream);
}

template <typename T>
void apply_channel_dropout(
    const BatchPlace* place, int64_t layer, int64_t num_samples, int64_t channels,
    int64_t area, double p, const T* in, T* out, Stream stream) {
  if (num_samples * channels * area > 0) {
    const Masked<T> masked{
        {place, layer, num_samples, channels, dropout_threshold(p)},
        static_cast<T>(1 / (1 - p)),
        in,
        out};
    launch(
        "channel_dropout", channel_dropout_kernel<T>,
        blocks_of(num_samples * channels, 1), kChannelThreads, 0, stream, masked, area);
  }
}

template void apply_channel_dropout(
    const BatchPlace*, int64_t, int64_t, int64_t, int64_t, double, const float*, float*,
    Stream);
template void apply_channel_dropout(
    const BatchPlace*, int64_t, int64_t, int64_t, int64_t, double, const double*,
    double*, Stream);
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

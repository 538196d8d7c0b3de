#include "tandem/kernels/cuda/gather.h"

#include "tandem/kernels/cuda/device.h"

namespace tandem::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kValuesOfAByte = 256;

__host__ __device__ int64_t values_of_image(const DeviceImages& images) {
  return images.channels * (images.height + 2 * images.pad) *
         (images.width + 2 * images.pad);
}

// Value number `at` of an image with its border. 32 bits: a GPU has no instruction for
// longer divisions.
__device__ uint8_t
pixel_at(const DeviceImages& images, const uint8_t* image, uint32_t at) {
  if (images.pad == 0) {
    return image[at];
  }
  const auto width = static_cast<uint32_t>(images.width + 2 * images.pad);
  const auto height = static_cast<uint32_t>(images.height + 2 * images.pad);
  const int64_t column = int64_t{at % width} - images.pad;
  const int64_t row = int64_t{at / width % height} - images.pad;
  const int64_t channel = at / width / height;
  const bool inside =
      row >= 0 && row < images.height && column >= 0 && column < images.width;
  return inside ? image[(channel * images.height + row) * images.width + column]
                : uint8_t{0};
}

// Blocks: `tiles` for each image of the batch.
__global__ void __launch_bounds__(kThreads) gather_kernel(
    DeviceImages images, const int64_t* __restrict__ indices, const BatchPlace* place,
    int64_t tiles, float* __restrict__ inputs, int64_t* __restrict__ targets) {
  __shared__ float table[kValuesOfAByte];
  for (unsigned i = threadIdx.x; i < kValuesOfAByte; i += kThreads) {
    table[i] = images.table[i];
  }
  __syncthreads();
  const int64_t in_batch = blockIdx.x / tiles;
  const int64_t tile = blockIdx.x % tiles;
  const int64_t held =
      indices[place->first_index + in_batch * place->index_stride] - images.first_held;
  if (tile == 0 && threadIdx.x == 0) {
    targets[in_batch] = images.labels[held];
  }
  const int64_t values = values_of_image(images);
  const uint8_t* image =
      images.pixels + held * images.channels * images.height * images.width;
  const int64_t end =
      values < (tile + 1) * kGatherTile ? values : (tile + 1) * kGatherTile;
  for (int64_t i = tile * kGatherTile + threadIdx.x; i < end; i += kThreads) {
    inputs[in_batch * values + i] =
        table[pixel_at(images, image, static_cast<uint32_t>(i))];
  }
}

}  // namespace

void gather_batch(
    const DeviceImages& images, const int64_t* indices, const BatchPlace* place,
    int64_t count, float* inputs, int64_t* targets, Stream stream) {
  const int64_t values = values_of_image(images);
  const int64_t tiles = blocks_of(values, kGatherTile);
  if (count > 0 && values > 0) {
    launch(
        "gather", gather_kernel, static_cast<unsigned>(count * tiles), kThreads, 0,
        stream, images, indices, place, tiles, inputs, targets);
  }
}

}  // namespace tandem::cuda

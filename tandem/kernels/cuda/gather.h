#pragma once

#include <cstdint>

#include "tandem/core/batch_place.h"
#include "tandem/kernels/cuda/stream.h"

namespace tandem::cuda {

/// Images as bytes on the device, and their classes (data/dataset.h).
struct DeviceImages {
  // Images held x channels x height x width.
  const uint8_t* pixels;
  // One for each image held.
  const uint8_t* labels;
  // The sample that the first image held is.
  int64_t first_held;
  int64_t channels;
  int64_t height;
  int64_t width;
  // What each value of a pixel becomes: Normaliser's 256 values (data/normalise.h).
  const float* table;
  // Black pixels on each side of the image.
  int64_t pad;
};

/// A block writes a tile of this many values, of one image, which has less than 2^32;
/// threads write neighbours.
constexpr int64_t kGatherTile = 2048;

/// A batch as data/loader.h makes it, bit for bit, from bytes on the device: 1 byte
/// read and 4 written for a pixel.
///
/// `indices`: samples of the data set, this shard's in the epoch; the batch has those
/// that `place` says, each held. `inputs`: count x channels x (height + 2 pad) x (width
/// + 2 pad). `targets`: `count` classes. All on the device; the indices are not checked
/// there.
void gather_batch(
    const DeviceImages& images, const int64_t* indices, const BatchPlace* place,
    int64_t count, float* inputs, int64_t* targets, Stream stream);

}  // namespace tandem::cuda

#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tandem/core/device/device_kernels.h"
#include "tandem/data/dataset.h"
#include "tandem/data/device_images.h"
#include "tandem/data/normalise.h"

namespace tandem {

/// Makes batches on a device by one kernel, of bytes: those of the whole data set where
/// they are there, else of the batch's own images, which go up in one copy from memory
/// for which the host need not wait, beside what the device computes. So a large set
/// costs a quarter of what its float32 would, and the host is ahead of the device
/// either way. Not thread-safe.
class DeviceBatches {
 public:
  /// Of `batch_size` samples at most.
  DeviceBatches(
      const Dataset& data, std::shared_ptr<const DeviceImages> images,
      const Normaliser& normalise, int64_t pad, int64_t batch_size);

  /// Of an epoch that begins: the samples in their order, and which of them each batch
  /// has, by first_index and index_stride.
  void begin(
      const std::vector<int64_t>& samples, const std::vector<BatchPlace>& places);

  /// Batch `number` of those. `samples`: int64, in main memory; `inputs` and `targets`
  /// as DeviceKernels::gather_batch() has them.
  void fill(
      int64_t number, const at::Tensor& samples, const at::Tensor& inputs,
      const at::Tensor& targets);

 private:
  // Where the bytes of a batch that goes up are: uint8, its images and, behind room for
  // batch_size_ of them, its classes.
  struct Sent {
    at::Tensor bytes;
    GatherSource source;
  };

  at::Tensor bytes_of(const at::Tensor& samples) const;

  Dataset data_;
  std::shared_ptr<const DeviceImages> images_;
  // Of the whole data set.
  GatherSource source_;
  // A BatchPlace for each batch, as rows of words; where a batch's bytes go up with it
  // one for all.
  at::Tensor places_;
  // In turn: the next batch's bytes go up while the last one's are read.
  std::array<Sent, 2> sent_;
  size_t next_ = 0;
  std::unique_ptr<CopyStream> copies_;
  int64_t batch_size_;
};

}  // namespace tandem

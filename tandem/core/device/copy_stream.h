#pragma once

#include <ATen/core/Tensor.h>

namespace tandem {

/// Copies from main memory to a device beside what it computes: on a stream of their
/// own, which waits for nothing but what still reads a place that is to be written.
/// Each of the places that are written in turn has a number, from 0. Not thread-safe.
class CopyStream {
 public:
  virtual ~CopyStream() = default;

  /// Copies `from`, of DeviceKernels::host_words(), to `to`, place `number`, once all
  /// has run that was in the calling thread's current stream at the last release() of
  /// that place. What is put in the current stream from now on waits for the copy; the
  /// host does not.
  virtual void copy(const at::Tensor& from, const at::Tensor& to, size_t number) = 0;

  /// What reads the place is in the calling thread's current stream.
  virtual void release(size_t number) = 0;
};

}  // namespace tandem

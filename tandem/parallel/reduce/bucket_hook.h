#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// A full bucket of gradients, which is a part of the gradient arena.
struct GradBucket {
  // Position, from 0, in the order in which buckets are reduced.
  size_t index = 0;
  // True if this is the last bucket of a backward pass.
  bool is_last = false;
  // The whole bucket as a flat tensor. Padding between slots is zero and must stay
  // zero.
  at::Tensor flat;
  // Views of the same memory: each gradient in its parameter's shape, with the
  // parameter's name.
  std::vector<NamedTensor> gradients;
};

/// Custom reduction of a bucket, called instead of the all-reduce.
///
/// On entry, `bucket.flat` contains this rank's gradients. The hook replaces them by
/// the values for .grad, which are not divided by the number of ranks afterwards.
///
/// The hook is called for one bucket after another while backward runs, in the same
/// order on all ranks. The hook must make the same calls of `comm` on all ranks. It
/// returns a function that waits for the result and writes the result to the bucket;
/// this function is called after backward. If the bucket is already reduced, the hook
/// returns an empty function.
using BucketHook =
    std::function<std::function<void()>(Communicator& comm, const GradBucket& bucket)>;

}  // namespace tandem

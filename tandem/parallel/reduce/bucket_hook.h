#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// A full bucket of gradients, which is a part of the gradient arena.
struct GradBucket {
  // Position in the order in which buckets are launched, from 0.
  size_t index = 0;
  // True if this is the last bucket of a backward.
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
/// On entry `bucket.flat` has this rank's gradients; the hook replaces them by the
/// values for .grad. The result is not divided by the number of ranks.
///
/// Called for one bucket after another while backward runs, in the same order on all
/// ranks. The hook must make the same calls on `comm` on all ranks. Returns a function
/// that waits for the result and writes it; it is called after backward. Returns an
/// empty function if the bucket is already reduced.
using BucketHook =
    std::function<std::function<void()>(Communicator& comm, const GradBucket& bucket)>;

}  // namespace tandem

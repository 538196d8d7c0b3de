#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// A full bucket of gradients, which is a part of the gradient arena.
struct GradBucket {
  // Position in the order of launch, from 0.
  size_t index = 0;
  // True for the last bucket of a backward.
  bool is_last = false;
  // The whole bucket as a flat tensor. Padding between slots is zero and must stay
  // zero.
  at::Tensor flat;
  // Views of the same memory: each gradient in its shape, by its parameter's name.
  std::vector<NamedTensor> gradients;
};

/// Reduces a bucket in place of the all-reduce.
///
/// On entry `bucket.flat` has this rank's gradients; the hook replaces them by the
/// values for .grad. The result is not divided by the number of ranks.
///
/// Called while backward runs, in the order of launch, which is the same on all ranks.
/// The calls on `comm` must be the same on all ranks too. Returns a function that is
/// called after backward to wait for the result and write it, or an empty function if
/// the bucket is reduced already.
using BucketHook =
    std::function<std::function<void()>(Communicator& comm, const GradBucket& bucket)>;

}  // namespace tandem

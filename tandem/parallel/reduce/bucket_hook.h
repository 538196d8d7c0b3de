#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// A full bucket of gradients, as a BucketHook sees it: a part of the gradient arena.
struct GradBucket {
  // Its place in the order of launch; whether it is a backward's last.
  size_t index = 0;
  bool is_last = false;
  // All of it, flat, with the padding between slots (zeros, which stay zeros).
  at::Tensor flat;
  // The same memory, each gradient in its shape, by its parameter's name.
  std::vector<NamedTensor> gradients;
};

/// Reduces a bucket instead of the all-reduce: `bucket.flat` holds this rank's
/// gradients and must come to hold what .grad shall be. Nothing divides by the number
/// of ranks behind it.
///
/// Called in the order of launch, the same on all ranks, while backward goes on; what
/// it calls on `comm` must be the same on all ranks too. Returns what is left to do
/// once backward has ended (to wait, and to write the result), or nothing where all
/// is done.
using BucketHook =
    std::function<std::function<void()>(Communicator& comm, const GradBucket& bucket)>;

}  // namespace tandem

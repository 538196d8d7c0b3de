#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/trace.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/parallel/reduce/bucket_hook.h"
#include "tandem/parallel/reduce/bucket_plan.h"

namespace tandem {

/// How buckets travel.
struct WireFormat {
  CommHook hook = CommHook::none;
  // With a hook: a factor that gradients have on the way and lose on arrival, for sums
  // of many ranks that fp16 (up to 65504) could not hold.
  double scale = 1;
  // Reduces buckets instead of all of this.
  BucketHook own = {};
};

/// Sums the gradient arena over ranks, bucket by bucket.
///
/// With a comm hook a bucket is rounded to 16 bits, summed as such, and widened
/// again: half the bytes (a quarter, of float64), and the same bits on all ranks. A
/// group of one sends nothing, so it rounds nothing. Source: PyTorch's
/// fp16_compress_hook and bf16_compress_hook (ddp_comm_hooks/default_hooks.py).
///
/// Buckets are launched in plan order, never in order of arrival: a bucket that
/// is full waits for those before it. A parameter whose gradient never comes
/// (it was not used) holds up its bucket until finish(), which then sends the
/// zeros that are there.
///
/// Source of the idea: Li et al., "PyTorch Distributed: Experiences on
/// Accelerating Data Parallel Training", VLDB 2020.
class GradReducer : public GradientSink {
 public:
  /// `during_backward`: launch full buckets at once, not only in finish().
  GradReducer(
      Communicator& comm, Arena& gradients, std::vector<Bucket> buckets,
      bool during_backward, const WireFormat& wire = {});

  /// Before the backward whose gradients are reduced.
  void begin(Trace* trace);

  void gradient_ready(size_t slot) override;

  /// Launches what is left and waits for all. Throws CommError.
  void finish();

  /// Buckets that were launched since begin().
  size_t num_launched() const {
    return next_;
  }

  /// Slots whose gradient did not come since begin(): parameters that this rank's
  /// loss does not depend on.
  std::vector<size_t> unused_slots() const;

  /// Says what PyTorch would stop at, at the first call only: the reduction goes on
  /// without those slots.
  void warn_of_unused();

  const std::vector<Bucket>& buckets() const {
    return buckets_;
  }

 private:
  void launch_next();
  std::function<void()> sum(size_t bucket);
  void pack(size_t bucket);
  void unpack(size_t bucket);

  Communicator& comm_;
  const Arena& gradients_;
  std::vector<Bucket> buckets_;
  bool during_backward_;
  double scale_;
  BucketHook own_hook_;
  // Per bucket: its slice of the arena, what is sent for it (the slice itself without
  // a hook), gradients still missing, what is left to do once it is in flight.
  std::vector<GradBucket> slices_;
  std::vector<at::Tensor> sent_;
  std::vector<size_t> missing_;
  std::vector<std::function<void()>> arrivals_;
  std::vector<size_t> bucket_of_slot_;
  std::vector<bool> ready_;
  size_t next_ = 0;
  bool looked_for_unused_ = false;
  Trace* trace_ = nullptr;
};

}  // namespace tandem

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

/// The format in which buckets are sent.
struct WireFormat {
  CommHook hook = CommHook::none;
  // Factor on gradients before the sum; the sum is divided by it. Keeps the sum over
  // many ranks in fp16's range (65504). Only used with `hook`.
  double scale = 1;
  // Custom reduction of buckets instead of `hook` and `scale`.
  BucketHook own = {};
};

/// Sums the gradient arena over ranks, one bucket at a time.
///
/// With a comm hook, a bucket is rounded to 16 bits, summed in that format, and
/// converted back. This sends half of the bytes for float32 and a quarter for float64,
/// and gives equal bits on all ranks. A group of one rank sends and rounds nothing.
/// Source: PyTorch's fp16_compress_hook and bf16_compress_hook
/// (ddp_comm_hooks/default_hooks.py).
///
/// Buckets are launched in the order of the plan, so a full bucket waits for the
/// earlier buckets. If a parameter gets no gradient because the loss does not use it,
/// its bucket waits until finish(), which sends zeros for that parameter.
///
/// Source of the method: Li et al., "PyTorch Distributed: Experiences on Accelerating
/// Data Parallel Training", VLDB 2020.
class GradReducer : public GradientSink {
 public:
  /// If `during_backward` is true, full buckets are launched during backward. Otherwise
  /// finish() launches all buckets.
  GradReducer(
      Communicator& comm, Arena& gradients, std::vector<Bucket> buckets,
      bool during_backward, const WireFormat& wire = {});

  /// Starts a reduction. Call it before the backward that computes the gradients.
  /// `trace` may be null.
  void begin(Trace* trace);

  void gradient_ready(size_t slot) override;

  /// Launches the remaining buckets and waits for all of them. Throws CommError.
  void finish();

  /// Returns the number of buckets launched since begin().
  size_t num_launched() const {
    return next_;
  }

  /// Returns the slots that got no gradient since begin(), because this rank's loss
  /// does not depend on their parameters.
  std::vector<size_t> unused_slots() const;

  /// Warns of unused_slots(), at the first call only. PyTorch reports an error for such
  /// parameters; here, their gradients count as zero.
  void warn_of_unused();

  /// Returns the buckets of the plan.
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
  // Slice of the arena for each bucket.
  std::vector<GradBucket> slices_;
  // Tensor that is sent for each bucket. Without a comm hook, the slice itself.
  std::vector<at::Tensor> sent_;
  // Number of gradients that each bucket still waits for.
  std::vector<size_t> missing_;
  // Functions that complete the reductions of the launched buckets.
  std::vector<std::function<void()>> arrivals_;
  std::vector<size_t> bucket_of_slot_;
  std::vector<bool> ready_;
  size_t next_ = 0;
  bool looked_for_unused_ = false;
  Trace* trace_ = nullptr;
};

}  // namespace tandem

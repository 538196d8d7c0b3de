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
  // Factor on gradients before the sum, divided out after it. Keeps sums of many ranks
  // in fp16's range (65504). Only used with `hook`.
  double scale = 1;
  // Custom reduction of buckets, in place of `hook` and `scale`.
  BucketHook own = {};
};

/// Sums the gradient arena over ranks, one bucket at a time.
///
/// With a comm hook, a bucket is rounded to 16 bits, summed in that format, and
/// converted back. This halves the bytes of float32 (a quarter for float64) and gives
/// equal bits on all ranks. A group of one sends and rounds nothing. Source: PyTorch's
/// fp16_compress_hook and bf16_compress_hook (ddp_comm_hooks/default_hooks.py).
///
/// Buckets are launched in the order of the plan: a full bucket waits for the buckets
/// before it. If a parameter gets no gradient because the loss does not use it, its
/// bucket waits until finish(), which sends zeros for that parameter.
///
/// Source of the idea: Li et al., "PyTorch Distributed: Experiences on
/// Accelerating Data Parallel Training", VLDB 2020.
class GradReducer : public GradientSink {
 public:
  /// `during_backward`: launch full buckets during backward; otherwise finish()
  /// launches all of them.
  GradReducer(
      Communicator& comm, Arena& gradients, std::vector<Bucket> buckets,
      bool during_backward, const WireFormat& wire = {});

  /// Starts a reduction; call it before the backward whose gradients are reduced.
  void begin(Trace* trace);

  void gradient_ready(size_t slot) override;

  /// Launches the remaining buckets and waits for all of them. Throws CommError.
  void finish();

  /// Returns the number of buckets launched since begin().
  size_t num_launched() const {
    return next_;
  }

  /// Returns the slots without a gradient since begin(): parameters on which this
  /// rank's loss does not depend.
  std::vector<size_t> unused_slots() const;

  /// Warns of unused slots, at the first call only. PyTorch reports an error for them;
  /// here their gradients count as zero.
  void warn_of_unused();

  /// Returns the plan.
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
  // The slice of the arena of each bucket.
  std::vector<GradBucket> slices_;
  // The tensor that is sent for each bucket; without a hook, the slice itself.
  std::vector<at::Tensor> sent_;
  // Number of gradients that each bucket still waits for.
  std::vector<size_t> missing_;
  // Completes the reduction of each launched bucket.
  std::vector<std::function<void()>> arrivals_;
  std::vector<size_t> bucket_of_slot_;
  std::vector<bool> ready_;
  size_t next_ = 0;
  bool looked_for_unused_ = false;
  Trace* trace_ = nullptr;
};

}  // namespace tandem

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/trace.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/parallel/reduce/bucket_hook.h"

namespace tandem {

/// The format in which buckets are sent.
struct WireFormat {
  CommHook hook = CommHook::none;
  // Factor by which gradients are multiplied before the sum. The sum is divided by the
  // same factor. The factor keeps sums over many ranks below 65504, the maximum of
  // fp16. Has no effect without `hook`.
  double scale = 1;
  // Custom reduction of buckets, which replaces `hook` and `scale`.
  BucketHook own = {};
};

/// Ranks that get the sum of a bucket: each rank gets the whole sum, or only its part
/// (Bucket::part()) of the sum. In the second case, half as many bytes are sent. The
/// rest of the bucket is undefined afterwards; if the arena releases memory
/// (Arena::releases()), the rest is released, and at most two buckets are being reduced
/// at a time.
enum class SumGoesTo { all_ranks, owners };

/// Sums the gradient arena over ranks, one bucket of its layout at a time.
///
/// With a comm hook, a bucket is rounded to a 16-bit format, summed in that format, and
/// converted back. All ranks get equal bits. Compared to the parameter's type, a rank
/// sends half as many bytes for float32 and a quarter for float64. In a group of one
/// rank, no gradients are sent or rounded. Source: PyTorch's fp16_compress_hook and
/// bf16_compress_hook (ddp_comm_hooks/default_hooks.py).
///
/// The reductions of buckets are started in the order of the plan, so a full bucket
/// waits for earlier buckets. If a parameter gets no gradient because the loss does not
/// use it, its bucket waits until finish(), which sends zeros for that parameter.
///
/// Source of the method: Li et al., "PyTorch Distributed: Experiences on Accelerating
/// Data Parallel Training", VLDB 2020.
class GradReducer : public GradientSink {
 public:
  /// If `during_backward` is true, the reductions of full buckets are started during
  /// backward. Otherwise, finish() starts all reductions. A custom reduction of `wire`
  /// needs `all_ranks`. With `owners`, a part that `comm` has summed is then summed
  /// over `replicas`, unless it is null.
  GradReducer(
      Communicator& comm, Arena& gradients, bool during_backward, WireFormat wire = {},
      SumGoesTo goes_to = SumGoesTo::all_ranks, Communicator* replicas = nullptr);

  /// Prepares for the next reduction. Call it before the backward whose gradients are
  /// reduced. `trace` gets a span for the start of each reduction; it may be null.
  void begin(Trace* trace);

  void gradient_ready(size_t slot) override;

  /// Reports the gradients of the first `count` buckets as ready.
  void launch_until(size_t count);

  /// Starts the reductions of the remaining buckets and waits for all reductions.
  /// Throws CommError.
  void finish();

  /// Returns the number of reductions started since begin().
  size_t num_launched() const {
    return next_;
  }

  /// In the first call, logs a warning about parameters that got no gradient since
  /// begin(), because this rank's loss does not depend on them. Their gradients count
  /// as zero; PyTorch reports an error instead.
  void warn_of_unused();

  /// Returns the buckets.
  const std::vector<Bucket>& buckets() const {
    return gradients_.layout().buckets();
  }

 private:
  void launch_next();
  void arrive_next();
  void free_memory();
  std::function<void()> sum(size_t bucket);
  at::Tensor summed_part(size_t bucket, const at::Tensor& flat) const;
  void pack(size_t bucket);
  void unpack(size_t bucket);

  Communicator& comm_;
  Arena& gradients_;
  bool during_backward_;
  WireFormat wire_;
  SumGoesTo goes_to_;
  Communicator* replicas_;
  // Slice of the gradient arena for each bucket.
  std::vector<GradBucket> slices_;
  // Tensor that is sent for each bucket. Without a comm hook, the slice itself.
  std::vector<at::Tensor> sent_;
  // Number of gradients of each bucket that are not ready yet.
  std::vector<size_t> missing_;
  // Work of the started reductions; null for custom reductions.
  std::vector<WorkPtr> works_;
  // Functions that wait for the started reductions and store their results.
  std::vector<std::function<void()>> arrivals_;
  std::vector<size_t> bucket_of_slot_;
  std::vector<bool> ready_;
  size_t next_ = 0;
  // The first bucket whose reduction has not been awaited.
  size_t oldest_ = 0;
  bool looked_for_unused_ = false;
  Trace* trace_ = nullptr;
};

}  // namespace tandem

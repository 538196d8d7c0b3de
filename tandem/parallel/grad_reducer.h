#pragma once

#include <cstdint>
#include <vector>

#include "tandem/base/trace.h"
#include "tandem/comm/communicator.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/parallel/bucket_plan.h"

namespace tandem {

/// Sums the gradient arena over ranks, bucket by bucket.
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
      bool during_backward);

  /// Before the backward whose gradients are reduced.
  void begin(Trace* trace);

  void gradient_ready(size_t slot) override;

  /// Launches what is left and waits for all. Throws CommError.
  void finish();

  const std::vector<Bucket>& buckets() const {
    return buckets_;
  }

 private:
  void launch_next();

  Communicator& comm_;
  std::vector<Bucket> buckets_;
  bool during_backward_;
  // Per bucket: its slice of the arena, gradients still missing, work in flight.
  std::vector<at::Tensor> slices_;
  std::vector<size_t> missing_;
  std::vector<WorkPtr> works_;
  std::vector<size_t> bucket_of_slot_;
  size_t next_ = 0;
  Trace* trace_ = nullptr;
};

}  // namespace tandem

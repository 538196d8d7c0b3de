#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "tandem/comm/communicator.h"

namespace tandem {

/// A separate group for the statistics of batch norm (model/sync_batch_norm.h), so that
/// they do not wait for the gradients' buckets in backward.
///
/// The first exchange forms the group. Ranks have compared their settings by then, so
/// all of them take part. Not thread-safe.
class StatisticsGroup {
 public:
  /// `comm` outlives the group.
  explicit StatisticsGroup(Communicator& comm) : comm_(comm) {}

  /// Returns the tensors `mine` of all ranks, in rank order. Collective; waits. Throws
  /// CommError.
  at::Tensor stack(const at::Tensor& mine) {
    if (!group_) {
      group_ = comm_.split(0);
    }
    return group_->stack(mine, "batch norm statistics");
  }

  /// Returns the statistics of the group.
  CommStats stats() const {
    return group_ ? group_->stats() : CommStats();
  }

 private:
  Communicator& comm_;
  std::unique_ptr<Communicator> group_;
};

}  // namespace tandem

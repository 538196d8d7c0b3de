#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "tandem/comm/communicator.h"

namespace tandem {

/// A separate group of all ranks, over which batch norm's statistics are exchanged
/// (graph/sync_batch_norm.h). In a separate group, the exchange need not wait for the
/// reductions of gradients.
///
/// The first call of stack() forms the group, so all ranks must make this call. Not
/// thread-safe.
class StatisticsGroup {
 public:
  /// Prepares a group of the ranks of `comm`, which must outlive this object.
  explicit StatisticsGroup(Communicator& comm) : comm_(comm) {}

  /// Returns the tensors `mine` of all ranks, stacked in rank order. Collective; waits.
  /// Throws CommError.
  at::Tensor stack(const at::Tensor& mine) {
    if (!group_) {
      group_ = comm_.split(0);
    }
    return group_->stack(mine, "batch norm statistics");
  }

  /// Returns the communication statistics of the group; all 0 if the group does not
  /// exist yet.
  CommStats stats() const {
    return group_ ? group_->stats() : CommStats();
  }

 private:
  Communicator& comm_;
  std::unique_ptr<Communicator> group_;
};

}  // namespace tandem

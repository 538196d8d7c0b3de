#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "tandem/comm/communicator.h"

namespace tandem {

/// Lets batch norm exchange its statistics (model/sync_batch_norm.h) over a group of
/// its own, so that they do not queue up behind the gradients' buckets in backward.
///
/// The group is formed in the first exchange: by then the ranks have compared their
/// settings, and all come to it. One thread calls at a time.
class StatisticsGroup {
 public:
  /// `comm` outlives the group.
  explicit StatisticsGroup(Communicator& comm) : comm_(comm) {}

  /// All ranks' `mine` in rank order. Collective; waits. Throws CommError.
  at::Tensor stack(const at::Tensor& mine) {
    if (!group_) {
      group_ = comm_.split(0);
    }
    return group_->stack(mine, "batch norm statistics");
  }

  CommStats stats() const {
    return group_ ? group_->stats() : CommStats();
  }

 private:
  Communicator& comm_;
  std::unique_ptr<Communicator> group_;
};

}  // namespace tandem

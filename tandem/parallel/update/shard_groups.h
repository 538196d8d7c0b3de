#pragma once

#include <cstdint>
#include <memory>

#include "tandem/comm/communicator.h"

namespace tandem {

/// The groups of hybrid sharding. Consecutive ranks form a shard group, which divides
/// values among its ranks; the ranks with the same number in their groups have the same
/// part, and form a group of replicas.
///
///   ranks 0 1 2 3 with a group size of 2:
///   shard groups {0 1} {2 3}, replicas {0 2} {1 3}
///
/// Source: hybrid sharding in Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully
/// Sharded Data Parallel", VLDB 2023.
class ShardGroups {
 public:
  /// `size` is StrategyOptions::shard_group. `all` must outlive this object.
  /// Collective. Throws ConfigError if the number of ranks is not a multiple of the
  /// size, or if hosts have different numbers of ranks.
  ShardGroups(int64_t size, Communicator& all);

  /// Returns the group that divides values.
  Communicator& shard() {
    return *shard_;
  }
  /// Returns the ranks with the same part; null if there is one shard group.
  Communicator* replicas() {
    return replicas_.get();
  }
  /// Returns the number of this rank's shard group, from 0.
  int index() const {
    return index_;
  }

 private:
  Communicator* shard_;
  int index_ = 0;
  // Null if `shard_` belongs to another object.
  std::unique_ptr<Communicator> own_shard_;
  std::unique_ptr<Communicator> replicas_;
};

}  // namespace tandem

#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/comm/shm/family.h"
#include "tandem/comm/shm/operation.h"
#include "tandem/comm/shm/region.h"

namespace tandem {

/// A rank of a group that has ended.
struct LostRank {
  int rank = 0;
  // True if the process died, false if the rank left the group.
  bool died = false;

  /// Returns a text such as "rank 2 died".
  std::string text() const {
    return "rank " + std::to_string(rank) + (died ? " died" : " left the group");
  }
};

/// A group of ranks that share memory. A rank has a number in its group and another
/// number in its family (family.h).
struct ShmGroup {
  std::shared_ptr<ShmFamily> family;
  // Region of this group. It is the family's region if the group was not split from
  // another group.
  std::shared_ptr<ShmRegion> region;
  int rank = 0;
  // For each rank of the group, in rank order, its number in the family.
  std::vector<int> family_ranks;
  std::chrono::milliseconds timeout{};

  int size() const {
    return static_cast<int>(family_ranks.size());
  }

  /// If the process of rank `member` has died, returns the rank whose death was
  /// detected first, or `member` if that rank is not in this group. If `member` has
  /// left the group and `count_left` is true, returns `member`. Otherwise returns
  /// nullopt.
  std::optional<LostRank> find_lost(int member, bool count_left) const;
};

/// Executes a group's collectives in rounds, in the order of their start.
///
/// start() announces the operation and returns. Each rank then executes the operation
/// in its calls of any kind, as far as is possible without waiting for other ranks. A
/// rank that calls start() early is therefore not blocked. Operations of more than
/// ShmAnnouncement::kPayloadBytes are divided into rounds. Each round moves data
/// through the next chunk of every rank, unless the tensors are processed in place
/// (ShmOperation::in_place()). In this example rank 1 is late:
///
///   rank 0   announce  fill 0  fill 1  (waits)                   take 0  fill 2
///   rank 1                             announce  fill 0  take 0  fill 1  take 1
///
/// fill() writes this rank's data of a round, and take() reads the data of all ranks. A
/// rank fills at most two rounds more than it has taken, and takes a round when all
/// ranks have filled it. Therefore, at most four of its eight chunks contain data that
/// another rank has not yet taken. region.h describes the memory order.
class ShmCollectives : public ShmProgress {
 public:
  explicit ShmCollectives(ShmGroup group);
  ~ShmCollectives() override;
  ShmCollectives(const ShmCollectives&) = delete;
  ShmCollectives& operator=(const ShmCollectives&) = delete;

  int rank() const {
    return group_.rank;
  }
  int size() const {
    return group_.size();
  }

  /// Queues an operation, and announces it as soon as an ShmAnnouncement is free. Does
  /// not wait.
  [[nodiscard]] WorkPtr start(std::shared_ptr<ShmOperation> operation);

  bool progress() override;

  bool test(const ShmOperation& operation);
  void wait(const ShmOperation& operation, std::chrono::milliseconds timeout);

  /// Returns a rank that died or left, -1 if none is known.
  int failed_rank() const {
    return failed_rank_;
  }

 private:
  bool announce(ShmOperation& operation);
  bool all_announced(ShmOperation& operation);
  void check_same_call(const ShmOperation& operation) const;
  bool advance(ShmOperation& operation);
  void take_small(ShmOperation& operation);
  bool start_rounds(ShmOperation& operation, bool all_here);
  bool fill_next(ShmOperation& operation);
  bool take_next(ShmOperation& operation);
  void end(ShmOperation& operation);
  bool is_small(const ShmOperation& operation) const;
  PerRank<char> shared_places(const ShmOperation& operation) const;
  int awaited_rank(const ShmOperation& operation) const;
  void look_for_lost_ranks(const ShmOperation& operation);

  ShmRankBlock& block(int rank) const {
    return *blocks_[static_cast<size_t>(rank)];
  }

  ShmGroup group_;
  std::vector<ShmRankBlock*> blocks_;
  std::deque<std::shared_ptr<ShmOperation>> queue_;
  size_t num_announced_ = 0;
  uint64_t next_operation_ = 0;
  uint64_t next_chunk_ = 0;
  // Minimum over all ranks of ShmRankBlock::operations_done and chunks_done, when this
  // rank last read them.
  uint64_t operations_done_ = 0;
  uint64_t chunks_done_ = 0;
  bool wrote_ = false;
  std::string error_;
  int failed_rank_ = -1;
};

}  // namespace tandem

#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/shm/family.h"
#include "tandem/comm/shm/operation.h"
#include "tandem/comm/shm/region.h"

namespace tandem {

/// A group of ranks and their numbers in the family.
struct ShmGroup {
  std::shared_ptr<ShmFamily> family;
  // Region of this group; that of the family if the group is the whole family.
  std::shared_ptr<ShmRegion> region;
  int rank = 0;
  // Rank in the family of each rank of the group.
  std::vector<int> family_ranks;
  std::chrono::milliseconds timeout{};

  int size() const {
    return static_cast<int>(family_ranks.size());
  }

  /// Returns -1 while `member` exists. After its death, returns the rank whose death
  /// was noticed first, or `member` if that rank is not in this group.
  int lost_with(int member) const;
};

/// Executes a group's collectives in rounds, in the order of their start.
///
/// start() announces the operation and returns. The rest happens in later calls of this
/// rank, of any kind, as soon as all ranks have announced the operation. So a rank that
/// is ahead waits only if it has to. An operation of more than
/// ShmAnnouncement::kPayloadBytes has several rounds, each through the next chunk of
/// every rank. In this example rank 1 is late:
///
///   rank 0   announce  fill 0  fill 1  (waits)                   take 0  fill 2
///   rank 1                             announce  fill 0  take 0  fill 1  take 1
///
/// A rank fills at most two rounds more than it has taken, and takes a round when all
/// ranks have filled it. So it never has more than four filled chunks that another rank
/// has yet to take, and a block has eight. region.h describes the memory order.
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

  /// Announces an operation.
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
  void fail(const std::string& error, int rank = -1);

  ShmRankBlock& block(int rank) const {
    return *blocks_[static_cast<size_t>(rank)];
  }

  ShmGroup group_;
  std::vector<ShmRankBlock*> blocks_;
  std::deque<std::shared_ptr<ShmOperation>> queue_;
  size_t num_announced_ = 0;
  uint64_t next_operation_ = 0;
  uint64_t next_chunk_ = 0;
  // Minimum of all ranks' counters when this rank last read them.
  uint64_t operations_done_ = 0;
  uint64_t chunks_done_ = 0;
  bool wrote_ = false;
  std::string error_;
  int failed_rank_ = -1;
};

}  // namespace tandem

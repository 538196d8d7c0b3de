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

/// A group of ranks, and its place in the family.
struct ShmGroup {
  std::shared_ptr<ShmFamily> family;
  // This group's own region; the family's where the group is all of the family.
  std::shared_ptr<ShmRegion> region;
  int rank = 0;
  // The rank in the family of each rank of the group.
  std::vector<int> family_ranks;
  std::chrono::milliseconds timeout{};

  int size() const {
    return static_cast<int>(family_ranks.size());
  }

  /// -1 while `member` lives. When it died: the rank whose death was noticed first, or
  /// `member` if that rank is not in this group.
  int lost_with(int member) const;
};

/// Takes a group's collectives through their rounds, in the order of their start.
///
/// A start announces the operation and returns. The rest is done in calls of this rank,
/// whichever they are, as soon as all have announced: so a rank that is ahead does not
/// wait until it has to. An operation of more than ShmAnnouncement::kPayloadBytes goes
/// in rounds, each through the next chunk of every rank; here rank 1 comes late:
///
///   rank 0   announce  fill 0  fill 1  (waits)                   take 0  fill 2
///   rank 1                             announce  fill 0  take 0  fill 1  take 1
///
/// A rank fills at most two rounds more than it has taken, and takes a round when all
/// have filled it. So it never has more than four chunks filled that another has yet to
/// take; a block has eight. The order of memory behind this is described in region.h.
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

  [[nodiscard]] WorkPtr start(std::shared_ptr<ShmOperation> operation);

  bool progress() override;

  bool test(const ShmOperation& operation);
  void wait(const ShmOperation& operation, std::chrono::milliseconds timeout);

  /// The rank that died or left, as far as is known; else -1.
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
  // The least of all ranks' counters, when this rank last looked.
  uint64_t operations_done_ = 0;
  uint64_t chunks_done_ = 0;
  bool wrote_ = false;
  std::string error_;
  int failed_rank_ = -1;
};

}  // namespace tandem

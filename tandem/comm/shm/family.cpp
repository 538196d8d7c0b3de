#include "tandem/comm/shm/family.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "tandem/base/deadline.h"

namespace tandem {

namespace {

// Waits for other ranks in three phases. The first phase polls for about 0.1 ms, the
// time that waking a sleeping rank takes. The second phase yields the core to other
// threads for about 1 ms. In the third phase, the rank sleeps until another rank rings
// (ShmRankBlock::bell).
//
// If another rank has recorded the same core, the thread moves to a core without a
// rank, once per wait. To move, the thread sets its affinity and then restores it. If
// there is no such core, the first phase is skipped, because polling would only delay
// the other rank.
class ShmWait {
 public:
  ShmWait(const ShmRegion& region, int rank, int size);

  void reset() {
    round_ = 0;
  }

  // Returns true if it is time to sleep. Otherwise polls or yields once and returns
  // false.
  bool pause();

 private:
  bool has_own_core();
  bool is_taken(int core) const;
  bool step_aside(int core) const;

  const ShmRegion& region_;
  int rank_;
  int size_;
  int64_t round_ = 0;
  bool stepped_aside_ = false;
};

// Marks this rank as sleeping while the object exists. Construct the object, check
// once more for new data, and only then call sleep(). A rank that writes data after
// this check wakes this rank. ShmRankBlock::sleeping explains this order.
class ShmSleeper {
 public:
  explicit ShmSleeper(ShmRankBlock& mine);
  ~ShmSleeper();
  ShmSleeper(const ShmSleeper&) = delete;
  ShmSleeper& operator=(const ShmSleeper&) = delete;

  // Sleeps until another rank rings, but at most for `limit`. May return earlier.
  void sleep(std::chrono::nanoseconds limit);

 private:
  ShmRankBlock& mine_;
  uint32_t seen_;
};

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // `isb` waits for the instructions in flight; `yield` does nothing on most cores.
  __asm__ volatile("isb" ::: "memory");
#endif
}

long futex(
    std::atomic<uint32_t>& word, int operation, uint32_t value,
    const timespec* timeout) {
  return syscall(
      SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr,
      0);
}

// Numbers of polls and of yields in a wait. A pause takes about 50 ns on newer x86
// cores.
constexpr int64_t kLooks = 2'000;
constexpr int64_t kYields = 1'000;

// Records the core on which this rank runs.
void note_core(const ShmRegion& region, int rank) {
  const int cpu = sched_getcpu() + 1;
  auto& mine = region.block(rank).cpu;
  if (mine.load(std::memory_order_relaxed) != cpu) {
    mine.store(cpu, std::memory_order_relaxed);
  }
}

ShmWait::ShmWait(const ShmRegion& region, int rank, int size)
    : region_(region), rank_(rank), size_(size) {}

bool ShmWait::pause() {
  ++round_;
  if (round_ >= kLooks + kYields) {
    return true;
  }
  if (round_ >= kLooks) {
    sched_yield();
    return false;
  }
  if (round_ % 64 == 16 && !has_own_core()) {
    round_ = kLooks;
  }
  relax();
  return false;
}

// Returns whether no other rank is on this rank's core, possibly after moving this rank
// to another core.
bool ShmWait::has_own_core() {
  note_core(region_, rank_);
  const int core = sched_getcpu();
  if (!is_taken(core)) {
    return true;
  }
  if (std::exchange(stepped_aside_, true)) {
    return false;
  }
  return step_aside(core);
}

bool ShmWait::is_taken(int core) const {
  for (int other = 0; other < size_; ++other) {
    if (other != rank_ &&
        region_.block(other).cpu.load(std::memory_order_relaxed) == core + 1) {
      return true;
    }
  }
  return false;
}

// Moves this rank to a core without a rank. The scheduler can leave two ranks on one
// core for many steps while another core is idle. Each rank sleeps while the other
// computes, so the load of the core is that of one rank. The affinity is restored,
// because otherwise two runs on one host could stay bound to the same cores.
bool ShmWait::step_aside(int core) const {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return false;
  }
  for (int distance = 1; distance < CPU_SETSIZE; ++distance) {
    const int other = (core + distance) % CPU_SETSIZE;
    if (CPU_ISSET(other, &allowed) && !is_taken(other)) {
      cpu_set_t there;
      CPU_ZERO(&there);
      CPU_SET(other, &there);
      const bool moved = sched_setaffinity(0, sizeof(there), &there) == 0;
      sched_setaffinity(0, sizeof(allowed), &allowed);
      note_core(region_, rank_);
      return moved;
    }
  }
  return false;
}

ShmSleeper::ShmSleeper(ShmRankBlock& mine) : mine_(mine), seen_(mine.bell.load()) {
  mine_.sleeping.store(1, std::memory_order_seq_cst);
  // Pairs with the fence in ring_sleepers(); see ShmRankBlock::sleeping.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

ShmSleeper::~ShmSleeper() {
  mine_.sleeping.store(0, std::memory_order_relaxed);
}

void ShmSleeper::sleep(std::chrono::nanoseconds limit) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  timespec time{};
  time.tv_sec = seconds.count();
  time.tv_nsec = (limit - seconds).count();
  futex(mine_.bell, FUTEX_WAIT, seen_, &time);
}

// Wakes the sleeping ranks among `ranks`, except `rank`, which is this rank. Call it
// after writing data for which the ranks may wait.
void ring_sleepers(const ShmRegion& region, int rank, const std::vector<int>& ranks) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const int other : ranks) {
    if (other == rank) {
      continue;
    }
    auto& block = region.block(other);
    if (block.sleeping.load(std::memory_order_relaxed) != 0 &&
        block.sleeping.exchange(0) != 0) {
      block.bell.fetch_add(1);
      futex(block.bell, FUTEX_WAKE, 1, nullptr);
    }
  }
}

}  // namespace

ShmFamily::ShmFamily(std::shared_ptr<ShmRegion> region, int rank, int size)
    : region_(std::move(region)),
      rank_(rank),
      size_(size),
      segments_(std::make_shared<ShmSegments>(region_, rank, size)) {}

void ShmFamily::add(ShmProgress& group) {
  groups_.push_back(&group);
}

void ShmFamily::remove(ShmProgress& group) {
  groups_.erase(std::remove(groups_.begin(), groups_.end(), &group), groups_.end());
}

bool ShmFamily::progress() {
  bool moved = false;
  for (size_t i = 0; i < groups_.size(); ++i) {
    moved = groups_[i]->progress() || moved;
  }
  return moved;
}

void ShmFamily::ring(const std::vector<int>& ranks) const {
  note_core(*region_, rank_);
  ring_sleepers(*region_, rank_, ranks);
}

void ShmFamily::wait(
    const std::function<bool()>& ended, std::chrono::milliseconds limit,
    const std::function<void(bool late)>& awake) {
  constexpr std::chrono::milliseconds kNap{20};
  // Set after the first sleep, because reading the clock takes as long as a small
  // all-reduce.
  std::optional<Deadline> deadline;
  ShmWait wait(*region_, rank_, size_);
  while (!ended()) {
    if (progress()) {
      wait.reset();
    } else if (wait.pause()) {
      ShmSleeper sleeper(region_->block(rank_));
      if (!progress()) {
        sleeper.sleep(kNap);
        if (!deadline) {
          deadline.emplace(limit);
        }
        awake(deadline->passed());
      }
    }
  }
}

}  // namespace tandem

#include "tandem/comm/shm_wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace tandem {

namespace {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

long futex(
    std::atomic<uint32_t>& word, int operation, uint32_t value,
    const timespec* timeout) {
  return syscall(
      SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr,
      0);
}

// A pause is some 50 ns on newer x86 cores: 0.1 ms of looking, as long as waking up
// takes; then about 1 ms of giving way.
constexpr int64_t kLooks = 2'000;
constexpr int64_t kYields = 1'000;

}  // namespace

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
  if (round_ % 64 == 16 && shares_core()) {
    round_ = kLooks;
  }
  relax();
  return false;
}

bool ShmWait::shares_core() const {
  const int cpu = sched_getcpu() + 1;
  auto& mine = region_.block(rank_).cpu;
  if (mine.load(std::memory_order_relaxed) != cpu) {
    mine.store(cpu, std::memory_order_relaxed);
  }
  for (int other = 0; other < size_; ++other) {
    if (other != rank_ &&
        region_.block(other).cpu.load(std::memory_order_relaxed) == cpu) {
      return true;
    }
  }
  return false;
}

ShmSleeper::ShmSleeper(ShmRankBlock& mine) : mine_(mine), seen_(mine.bell.load()) {
  mine_.sleeping.store(1, std::memory_order_seq_cst);
  // Pairs with the fence in ring_sleepers().
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

}  // namespace tandem

#include "tandem/comm/shm/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <utility>

namespace tandem {

namespace {

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

// Numbers of polls and of yields. A pause takes about 50 ns on newer x86 cores. A rank
// therefore polls for about 0.1 ms, the time that waking a sleeping rank takes, and
// then yields for about 1 ms.
constexpr int64_t kLooks = 2'000;
constexpr int64_t kYields = 1'000;

}  // namespace

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

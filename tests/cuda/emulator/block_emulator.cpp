#include "tests/cuda/emulator/block_emulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda/emulator/fibre.h"

namespace tandem::emulator {

namespace {

constexpr unsigned kWarp = 32;
// Of all GPUs; more shared memory has to be asked for.
constexpr unsigned kMostThreads = 1024;
constexpr size_t kMostSharedBytes = size_t{48} * 1024;
constexpr unsigned kMostBlocksAside = 65'535;

Order order = Order::forward;
std::mt19937_64 generator;

// Which threads can go on, or which blocks are left.
class IndexSet {
 public:
  explicit IndexSet(unsigned count) : count_(count), words_((count + 63) / 64) {
    for (unsigned i = 0; i < count; ++i) {
      insert(i);
    }
  }

  void insert(unsigned index) {
    words_[index / 64] |= uint64_t{1} << index % 64;
    ++size_;
  }
  void erase(unsigned index) {
    words_[index / 64] &= ~(uint64_t{1} << index % 64);
    --size_;
  }
  bool empty() const {
    return size_ == 0;
  }

  // The one whose turn it is; there is one.
  unsigned next() const {
    if (order == Order::forward) {
      return first_from(0);
    }
    if (order == Order::backward) {
      return last();
    }
    return first_from(static_cast<unsigned>(generator() % count_));
  }

 private:
  // The first one at or behind `index`, or else the first of all.
  unsigned first_from(unsigned index) const {
    size_t at = index / 64;
    uint64_t word = words_[at] & ~uint64_t{0} << index % 64;
    while (word == 0) {
      at = (at + 1) % words_.size();
      word = words_[at];
    }
    return static_cast<unsigned>(at * 64) +
           static_cast<unsigned>(__builtin_ctzll(word));
  }
  unsigned last() const {
    size_t at = words_.size() - 1;
    while (words_[at] == 0) {
      --at;
    }
    return static_cast<unsigned>(at * 64 + 63) -
           static_cast<unsigned>(__builtin_clzll(words_[at]));
  }

  unsigned count_;
  unsigned size_ = 0;
  std::vector<uint64_t> words_;
};

enum class State { ready, at_barrier, in_exchange, ended };

struct Thread {
  State state = State::ready;
  Site site{};
  unsigned mask = 0;
  uint64_t given = 0;
  std::array<uint64_t, kWarp> seen{};
};

std::string place(const Site& site) {
  const std::string file = site.file;
  return fmt::format(
      "{} in {}:{}", site.function, file.substr(file.rfind('/') + 1), site.line);
}

bool same(const Site& a, const Site& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

std::string describe(unsigned index, const Thread& thread) {
  if (thread.state == State::ended) {
    return fmt::format("thread {} has ended", index);
  }
  return fmt::format("thread {} is at {}", index, place(thread.site));
}

// So many blocks may have begun and not ended: more than one where a thread stepped
// aside at an atomic operation and another block ran.
constexpr unsigned kDeepest = 3;

// Fibres cost a mapping each: they are kept from launch to launch.
Fibre& fibre(unsigned index) {
  static std::vector<std::unique_ptr<Fibre>> all;
  while (all.size() <= index) {
    all.push_back(std::make_unique<Fibre>());
  }
  return *all[index];
}

dim3 place_of(unsigned index, dim3 size) {
  return {index % size.x, index / size.x % size.y, index / size.x / size.y};
}

class Block;

// Of the launch that runs.
struct Launch {
  const char* kernel;
  dim3 grid;
  size_t shared_bytes;
  const std::function<void()>& thread;
  IndexSet left;

  // `depth`: how many blocks have begun and not ended.
  void run_next(unsigned depth);
};

// The block and the launch that run.
Block* current = nullptr;
Launch* launch_now = nullptr;

// One block, from its start to its end.
class Block {
 public:
  Block(
      const char* kernel, size_t shared_bytes, const std::function<void()>& body,
      unsigned depth)
      : kernel_(kernel),
        threads_(size_t{blockDim.x} * blockDim.y * blockDim.z),
        shared_(new unsigned char[shared_bytes]),
        depth_(depth) {
    std::fill_n(shared_.get(), shared_bytes, 0xff);
    for (unsigned i = 0; i < size(); ++i) {
      own_fibre(i).start(body);
    }
  }

  void run() {
    unsigned left = size();
    while (left > 0) {
      if (ready_.empty()) {
        report_standstill();
      }
      running_ = ready_.next();
      threadIdx = place_of(running_, blockDim);
      if (own_fibre(running_).resume()) {
        stop(State::ended);
        --left;
      } else if (aside_) {
        aside_ = false;
        run_another();
      }
    }
  }

  void barrier(const Site& site) {
    Thread& own = threads_[running_];
    own.site = site;
    stop(State::at_barrier);
    if (++at_barrier_ == size()) {
      at_barrier_ = 0;
      check_same_barrier();
      for (unsigned i = 0; i < size(); ++i) {
        release(i);
      }
    }
    Fibre::pause();
  }

  const uint64_t* exchange(unsigned mask, uint64_t given, const Site& site) {
    Thread& own = threads_[running_];
    if ((mask >> lane() & 1) == 0) {
      throw EmulatorError(fmt::format(
          "[emulator] kernel {}: thread {} calls {} with a mask of {:#010x}, in which "
          "it is not",
          kernel_, running_, place(site), mask));
    }
    own.site = site;
    own.mask = mask;
    own.given = given;
    stop(State::in_exchange);
    // Most often some are still to come: that is seen without a look at each.
    const unsigned waiting = ++in_exchange_[running_ / kWarp];
    if (waiting >= static_cast<unsigned>(__builtin_popcount(mask)) &&
        all_exchange(own)) {
      complete(own);
    }
    Fibre::pause();
    return own.seen.data();
  }

  // Pauses at an atomic operation.
  void step_aside() {
    aside_ = true;
    Fibre::pause();
  }

  unsigned lane() const {
    return running_ % kWarp;
  }
  void* shared() {
    return shared_.get();
  }

 private:
  unsigned size() const {
    return static_cast<unsigned>(threads_.size());
  }

  Fibre& own_fibre(unsigned index) const {
    return fibre(depth_ * kMostThreads + index);
  }

  // By chance, a block that has not begun, before this one goes on: then it sees what
  // this one has and has not written.
  void run_another() {
    if (order == Order::random && generator() % 2 == 0 && depth_ + 1 < kDeepest &&
        !launch_now->left.empty()) {
      const dim3 place = blockIdx;
      launch_now->run_next(depth_ + 1);
      blockIdx = place;
      current = this;
    }
  }

  void stop(State state) {
    threads_[running_].state = state;
    ready_.erase(running_);
  }
  void release(unsigned index) {
    threads_[index].state = State::ready;
    ready_.insert(index);
  }

  // The thread of a lane in the warp of the thread that runs; null: the block ends
  // before.
  Thread* neighbour(unsigned lane_of_it) {
    const unsigned index = running_ / kWarp * kWarp + lane_of_it;
    return index < size() ? &threads_[index] : nullptr;
  }

  bool all_exchange(const Thread& own) {
    for (unsigned i = 0; i < kWarp; ++i) {
      const Thread* other = neighbour(i);
      if ((own.mask >> i & 1) != 0 &&
          (other == nullptr || other->state != State::in_exchange ||
           other->mask != own.mask || !same(other->site, own.site))) {
        return false;
      }
    }
    return true;
  }

  void complete(const Thread& own) {
    const unsigned mask = own.mask;
    std::array<uint64_t, kWarp> given{};
    for (unsigned i = 0; i < kWarp; ++i) {
      given[i] = (mask >> i & 1) != 0 ? neighbour(i)->given : ~uint64_t{0};
    }
    for (unsigned i = 0; i < kWarp; ++i) {
      if ((mask >> i & 1) != 0) {
        neighbour(i)->seen = given;
        --in_exchange_[running_ / kWarp];
        release(running_ / kWarp * kWarp + i);
      }
    }
  }

  void check_same_barrier() const {
    for (unsigned i = 1; i < size(); ++i) {
      if (!same(threads_[i].site, threads_[0].site)) {
        throw EmulatorError(fmt::format(
            "[emulator] kernel {}: a barrier that threads reach at different lines; "
            "{}, "
            "{}",
            kernel_, describe(0, threads_[0]), describe(i, threads_[i])));
      }
    }
  }

  // No thread can go on: says of the first that waits for what.
  [[noreturn]] void report_standstill() {
    const auto waits = [](const Thread& thread) {
      return thread.state == State::in_exchange;
    };
    auto first = std::find_if(threads_.begin(), threads_.end(), waits);
    const bool in_warp = first != threads_.end();
    if (!in_warp) {
      first = std::find_if(threads_.begin(), threads_.end(), [](const Thread& thread) {
        return thread.state == State::at_barrier;
      });
    }
    const auto index = static_cast<unsigned>(first - threads_.begin());
    const unsigned begin = in_warp ? index / kWarp * kWarp : 0;
    const unsigned end = in_warp ? begin + kWarp : size();
    for (unsigned i = begin; i < end; ++i) {
      const bool named = !in_warp || (first->mask >> (i - begin) & 1) != 0;
      if (named && i >= size()) {
        fail(*first, index, fmt::format("the block has no thread {}", i));
      }
      if (named &&
          (threads_[i].state != first->state || threads_[i].mask != first->mask ||
           !same(threads_[i].site, first->site))) {
        fail(*first, index, describe(i, threads_[i]));
      }
    }
    fail(*first, index, "nobody is missing");
  }

  [[noreturn]] void fail(
      const Thread& waiting, unsigned index, const std::string& missing) const {
    throw EmulatorError(fmt::format(
        "[emulator] kernel {}, block {}: {}, which not all reach; {}", kernel_,
        blockIdx.x, describe(index, waiting), missing));
  }

  const char* kernel_;
  std::vector<Thread> threads_;
  std::unique_ptr<unsigned char[]> shared_;
  unsigned depth_;
  unsigned running_ = 0;
  bool aside_ = false;
  IndexSet ready_{size()};
  unsigned at_barrier_ = 0;
  // Of each warp.
  std::vector<unsigned> in_exchange_ =
      std::vector<unsigned>((size() + kWarp - 1) / kWarp);
};

void Launch::run_next(unsigned depth) {
  const unsigned next = left.next();
  left.erase(next);
  blockIdx = place_of(next, grid);
  Block one(kernel, shared_bytes, thread, depth);
  current = &one;
  one.run();
}

std::function<void(const std::function<void()>&)> around_launch;

void check_sizes(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes) {
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (blocks == 0 || grid.y > kMostBlocksAside || grid.z > kMostBlocksAside ||
      threads == 0 || threads > kMostThreads || shared_bytes > kMostSharedBytes) {
    throw EmulatorError(fmt::format(
        "[emulator] kernel {}: {} x {} x {} blocks of {} threads with {} bytes of "
        "shared memory are impossible",
        kernel, grid.x, grid.y, grid.z, threads, shared_bytes));
  }
}

void run_blocks(
    const char* kernel, dim3 grid, dim3 block, size_t shared_bytes,
    const std::function<void()>& thread) {
  ++launches;
  gridDim = grid;
  blockDim = block;
  Launch launch{kernel, grid, shared_bytes, thread, IndexSet(grid.x * grid.y * grid.z)};
  launch_now = &launch;
  while (!launch.left.empty()) {
    launch.run_next(0);
  }
}

}  // namespace

void set_order(Order new_order, uint64_t seed) {
  order = new_order;
  generator.seed(seed);
}

void set_around_launch(std::function<void(const std::function<void()>&)> around) {
  around_launch = std::move(around);
}

void run(
    const char* kernel, dim3 grid, dim3 block, size_t shared_bytes,
    const std::function<void()>& thread) {
  check_sizes(kernel, grid, block, shared_bytes);
  if (around_launch) {
    around_launch([=] { run_blocks(kernel, grid, block, shared_bytes, thread); });
  } else {
    run_blocks(kernel, grid, block, shared_bytes, thread);
  }
}

void* dynamic_shared() {
  return current->shared();
}

void block_barrier(const Site& site) {
  current->barrier(site);
}

const uint64_t* exchange(unsigned mask, uint64_t given, const Site& site) {
  return current->exchange(mask, given, site);
}

void step_aside() {
  current->step_aside();
}

unsigned lane() {
  return current->lane();
}

}  // namespace tandem::emulator

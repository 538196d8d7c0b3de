#pragma once

// What a kernel's source finds in place of the CUDA runtime where tests compile it as
// C++ (tandem/kernels/cuda/device.h): CUDA's words, and launch().

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/stream.h"

#define __global__
#define __host__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define TANDEM_UNROLL
// One block runs at a time; a kernel with atomic operations, at which others may run
// in between, has dynamic shared memory only. So that the sanitizer sees an overrun,
// kernels are in unnamed namespaces: GCC puts no guard behind variables that several
// objects may define.
#define __shared__ static

struct dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  constexpr dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3() = default;
};

// Of the thread that runs.
inline dim3 threadIdx;
inline dim3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

namespace tandem::emulator {

/// Which of the threads that can go on does, each time one stops: at a barrier, at an
/// exchange between the lanes of a warp, at an atomic operation, or at its end. The
/// same for blocks, one of which runs to its end before the next begins; but in random
/// order others may run while one is at an atomic operation.
enum class Order { forward, backward, random };

/// For the launches to come. `seed`: of random.
void set_order(Order order, uint64_t seed = 0);

/// A kernel that CUDA does not define, or would never end: a barrier that not all
/// threads of the block reach, or reach at different lines; lanes that do not come to
/// the exchange that names them; a launch of an impossible size.
class EmulatorError : public Error {
 public:
  using Error::Error;
};

/// For which GPUs kernels are compiled: 90 for compute capability 9.0, until it is set.
inline int code_architecture = 90;

/// How many kernels were launched since the program began.
inline int64_t launches = 0;

/// Where the kernel's source calls one of CUDA's functions.
struct Site {
  const char* function;
  const char* file;
  int line;
};

/// Runs a grid of blocks, each thread of which calls `thread`. Throws EmulatorError,
/// and what `thread` throws; the blocks behind are left out.
void run(
    const char* kernel, dim3 grid, dim3 block, size_t shared_bytes,
    const std::function<void()>& thread);

/// Called with each launch to come, as a function that runs it, now or, from a copy,
/// later and again: what a device does so that kernels, and they alone, can touch its
/// memory. Null: they run as they are.
void set_around_launch(std::function<void(const std::function<void()>& launch)> around);

/// The block's dynamic shared memory, as large as was asked for; begins as NaNs.
void* dynamic_shared();

void block_barrier(const Site& site);

/// Waits for the lanes of `mask`, this one among them, to call the same. `given` is
/// what this lane has; returns what all had, by lane; 64 bits each, ones where there is
/// none.
const uint64_t* exchange(unsigned mask, uint64_t given, const Site& site);

/// Another thread may go on here.
void step_aside();

unsigned lane();

template <typename T>
T exchanged(unsigned mask, T value, unsigned source, unsigned width, const Site& site) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "lanes exchange 64 bits at most");
  const unsigned own = lane();
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const bool inside = own / width == source / width;
  bits = exchange(mask, bits, site)[inside ? source : own];
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace tandem::emulator

// The defaults are of the line that calls.
#define TANDEM_SITE_ARGUMENTS \
  const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(TANDEM_SITE_ARGUMENTS) {
  tandem::emulator::block_barrier({"__syncthreads", file, line});
}

constexpr int warpSize = 32;

template <typename T>
T __shfl_down_sync(
    unsigned mask, T value, unsigned delta, int width = warpSize,
    TANDEM_SITE_ARGUMENTS) {
  return tandem::emulator::exchanged(
      mask, value, tandem::emulator::lane() + delta, static_cast<unsigned>(width),
      {"__shfl_down_sync", file, line});
}

template <typename T>
T __shfl_xor_sync(
    unsigned mask, T value, int bits, int width = warpSize, TANDEM_SITE_ARGUMENTS) {
  return tandem::emulator::exchanged(
      mask, value, tandem::emulator::lane() ^ static_cast<unsigned>(bits),
      static_cast<unsigned>(width), {"__shfl_xor_sync", file, line});
}

inline unsigned __ballot_sync(unsigned mask, int predicate, TANDEM_SITE_ARGUMENTS) {
  const uint64_t* given = tandem::emulator::exchange(
      mask, predicate != 0 ? 1 : 0, {"__ballot_sync", file, line});
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    votes |= given[lane] == 1 ? 1u << lane : 0;
  }
  return votes;
}

inline void __syncwarp(unsigned mask = 0xffffffff, TANDEM_SITE_ARGUMENTS) {
  tandem::emulator::exchange(mask, 0, {"__syncwarp", file, line});
}

/// Returns what was there before.
template <typename T>
T atomicAdd(T* address, T value) {
  tandem::emulator::step_aside();
  const T before = *address;
  *address = before + value;
  return before;
}

/// What a thread wrote is there for all at once, so a missing fence is not found.
inline void __threadfence() {}

template <typename T>
T __ldcg(const T* address) {
  return *address;
}

namespace tandem::cuda {

template <typename T>
T* dynamic_shared() {
  return static_cast<T*>(emulator::dynamic_shared());
}

template <typename... Parameters, typename... Arguments>
void launch(
    const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
    size_t shared_bytes, Stream, Arguments... arguments) {
  emulator::run(name, grid, block, shared_bytes, [=] { kernel(arguments...); });
}

template <typename... Parameters>
int code_architecture(const char*, void (*)(Parameters...)) {
  return emulator::code_architecture;
}

}  // namespace tandem::cuda

#include "tests/cuda/emulator/warp_matrix.h"

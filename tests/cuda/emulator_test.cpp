// What runs kernels as C++: does it find what is wrong with them?

#include "tests/cuda/emulator/block_emulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tandem/kernels/cuda/device.h"
#include "tandem/kernels/cuda/reduce.h"
#include "tests/core/expect.h"
#include "tests/cuda/orders.h"

namespace tandem::emulator_test {

using cuda::launch;
using emulator::EmulatorError;
using testing::AllOf;
using testing::HasSubstr;

void places(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread =
      threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] += block * 1000 + thread;
}

TEST(Emulator, RunsEachThreadOfEachBlockOnce) {
  in_orders([] {
    std::vector<unsigned> out(24 * 60, 1);
    launch("places", places, {2, 3, 4}, {3, 4, 5}, 0, nullptr, out.data());
    for (unsigned i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], i / 60 * 1000 + i % 60 + 1);
    }
  });
}

// Turns each block's part round, by way of shared memory.
template <bool with_barrier>
__global__ void turn_round(int* values) {
  __shared__ int part[64];
  int* own = values + blockIdx.x * blockDim.x;
  part[threadIdx.x] = own[threadIdx.x];
  if (with_barrier) {
    __syncthreads();
  }
  own[threadIdx.x] = part[blockDim.x - 1 - threadIdx.x];
}

template <bool with_barrier>
int wrong_orders() {
  int wrong = 0;
  in_orders([&] {
    std::vector<int> values(3 * 64);
    std::iota(values.begin(), values.end(), 1);
    launch("turn_round", turn_round<with_barrier>, 3, 64, 0, nullptr, values.data());
    bool right = true;
    for (int i = 0; i < 3 * 64; ++i) {
      right = right && values[static_cast<size_t>(i)] == i / 64 * 64 + 64 - i % 64;
    }
    wrong += right ? 0 : 1;
  });
  return wrong;
}

TEST(Emulator, ABarrierThatWasRemovedIsFoundInEveryOrder) {
  EXPECT_EQ(wrong_orders<true>(), 0);
  EXPECT_EQ(wrong_orders<false>(), kOrders);
}

__global__ void barrier_of_some(unsigned missing) {
  if (threadIdx.x != missing) {
    __syncthreads();
  }
}

TEST(Emulator, ABarrierThatAThreadDoesNotReachIsAnErrorWithItsLine) {
  in_orders([] {
    EXPECT_THAT(
        error_of<EmulatorError>(
            [] { launch("some", barrier_of_some, 1, 70, 0, nullptr, 67u); }),
        AllOf(
            HasSubstr("kernel some"), HasSubstr("__syncthreads in emulator_test.cpp:"),
            HasSubstr("not all reach; thread 67 has ended")));
  });
  // What was left behind does not disturb the next kernel.
  EXPECT_EQ(wrong_orders<true>(), 0);
}

__global__ void barriers_of_two_lines() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST(Emulator, ABarrierInTwoBranchesIsAnError) {
  in_orders([] {
    EXPECT_THAT(
        error_of<EmulatorError>(
            [] { launch("two", barriers_of_two_lines, 1, 64, 0, nullptr); }),
        AllOf(HasSubstr("kernel two"), HasSubstr("at different lines")));
  });
}

__global__ void shuffle_of_some(unsigned mask, unsigned missing, int* out) {
  if (threadIdx.x != missing) {
    out[threadIdx.x] = __shfl_down_sync(mask, static_cast<int>(threadIdx.x), 1);
  } else {
    __syncthreads();
  }
}

TEST(Emulator, AShuffleThatANamedLaneDoesNotReachIsAnErrorWithItsLine) {
  in_orders([] {
    std::vector<int> out(64);
    EXPECT_THAT(
        error_of<EmulatorError>([&] {
          launch(
              "shuffle", shuffle_of_some, 1, 64, 0, nullptr, 0xffffffffu, 40u,
              out.data());
        }),
        AllOf(
            HasSubstr("kernel shuffle"),
            HasSubstr("__shfl_down_sync in emulator_test.cpp:"),
            HasSubstr("thread 40 is at __syncthreads in emulator_test.cpp:")));
    // A lane that the mask does not name, and one that the block does not have.
    EXPECT_THAT(
        error_of<EmulatorError>([&] {
          launch(
              "shuffle", shuffle_of_some, 1, 32, 0, nullptr, 0x0000ffffu, 99u,
              out.data());
        }),
        HasSubstr("with a mask of 0x0000ffff, in which it is not"));
    EXPECT_THAT(
        error_of<EmulatorError>([&] {
          launch(
              "shuffle", shuffle_of_some, 1, 40, 0, nullptr, 0xffffffffu, 99u,
              out.data());
        }),
        HasSubstr("the block has no thread 40"));
  });
}

struct Exchanged {
  float down[64];
  double crossed[64];
  int segment[64];
  unsigned votes[64];
};

__global__ void exchanges(Exchanged* out) {
  const unsigned i = threadIdx.x;
  out->down[i] = __shfl_down_sync(0xffffffff, static_cast<float>(i), 3);
  out->crossed[i] = __shfl_xor_sync(0xffffffff, static_cast<double>(i), 5);
  out->segment[i] = __shfl_down_sync(0xffffffff, static_cast<int>(i), 1, 8);
  __syncwarp();
  out->votes[i] = __ballot_sync(0xffffffff, i % 3 == 0);
}

TEST(Emulator, LanesExchangeAsCudaSays) {
  in_orders([] {
    Exchanged out{};
    launch("exchanges", exchanges, 1, 64, 0, nullptr, &out);
    for (unsigned i = 0; i < 64; ++i) {
      EXPECT_EQ(out.down[i], i % 32 + 3 < 32 ? i + 3 : i);
      EXPECT_EQ(out.crossed[i], i / 32 * 32 + ((i % 32) ^ 5));
      EXPECT_EQ(out.segment[i], static_cast<int>(i % 8 == 7 ? i : i + 1));
      // 0, 3, ..., 30 of the first warp; 33, 36, ..., 63 of the second.
      EXPECT_EQ(out.votes[i], i < 32 ? 0x49249249u : 0x92492492u);
    }
  });
}

// A warp's lanes read what others wrote before the barrier.
template <bool with_barrier>
__global__ void next_in_warp(int base, int* out) {
  __shared__ int part[32];
  part[threadIdx.x] = base + static_cast<int>(threadIdx.x);
  if (with_barrier) {
    __syncwarp();
  }
  out[threadIdx.x] = part[(threadIdx.x + 1) % 32];
}

template <bool with_barrier>
int wrong_warps() {
  int wrong = 0;
  int base = 0;
  in_orders([&] {
    base += 100;
    std::vector<int> out(32);
    launch("next", next_in_warp<with_barrier>, 1, 32, 0, nullptr, base, out.data());
    wrong += std::accumulate(out.begin(), out.end(), 0) == 32 * base + 31 * 16 ? 0 : 1;
  });
  return wrong;
}

TEST(Emulator, ASyncwarpThatWasRemovedIsFoundInEveryOrder) {
  EXPECT_EQ(wrong_warps<true>(), 0);
  EXPECT_EQ(wrong_warps<false>(), kOrders);
}

__global__ void count(int* total, int* seen) {
  seen[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(total, 2);
}

TEST(Emulator, AtomicAddGivesWhatWasThere) {
  in_orders([] {
    int total = 0;
    std::vector<int> seen(5 * 40);
    launch("count", count, 5, 40, 0, nullptr, &total, seen.data());
    EXPECT_EQ(total, 2 * 5 * 40);
    std::sort(seen.begin(), seen.end());
    for (int i = 0; i < 5 * 40; ++i) {
      ASSERT_EQ(seen[static_cast<size_t>(i)], 2 * i);
    }
  });
}

__global__ void dynamic_sum(unsigned shift, float* out) {
  auto* part = cuda::dynamic_shared<float>();
  part[threadIdx.x + shift] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    *out = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) {
      *out += part[i];
    }
  }
}

TEST(Emulator, DynamicSharedMemoryBeginsAsNans) {
  float sum = 0;
  launch("sum", dynamic_sum, 1, 48, 48 * sizeof(float), nullptr, 0u, &sum);
  EXPECT_EQ(sum, 48);
  launch("sum", dynamic_sum, 1, 48, 49 * sizeof(float), nullptr, 1u, &sum);
  EXPECT_NE(sum, sum);
}

TEST(Emulator, RefusesImpossibleSizes) {
  float sum = 0;
  const auto run = [&](unsigned blocks, unsigned threads, size_t bytes) {
    return error_of<EmulatorError>(
        [&] { launch("sum", dynamic_sum, blocks, threads, bytes, nullptr, 0u, &sum); });
  };
  EXPECT_THAT(run(0, 32, 128), HasSubstr("impossible"));
  EXPECT_THAT(run(1, 1025, 8192), HasSubstr("impossible"));
  EXPECT_THAT(run(1, 32, 49'153), HasSubstr("impossible"));
}

TEST(Emulator, PassesOnWhatAThreadThrows) {
  const auto run = [] {
    emulator::run("thrower", 1, 3, 0, [] {
      if (threadIdx.x == 1) {
        throw DataError("of thread 1");
      }
      __syncthreads();
    });
  };
  EXPECT_EQ(error_of<DataError>(run), "of thread 1");
}

__global__ void sums(const float* in, float* block, float* warp) {
  __shared__ float parts[8];
  const float value = in[threadIdx.x];
  const float sum = cuda::block_sum(value, parts);
  warp[threadIdx.x] = cuda::warp_sum(value);
  if (threadIdx.x == 0) {
    *block = sum;
  }
}

TEST(Reduce, SumsHaveTheSameBitsInEveryOrderAndLane) {
  std::vector<float> in(256);
  for (size_t i = 0; i < in.size(); ++i) {
    in[i] = 1.0f / static_cast<float>(3 * i + 1);
  }
  std::vector<float> found;
  in_orders([&] {
    float block = 0;
    std::vector<float> warp(256);
    launch("sums", sums, 1, 256, 0, nullptr, in.data(), &block, warp.data());
    EXPECT_NEAR(block, std::accumulate(in.begin(), in.end(), 0.0), 1e-6);
    for (size_t i = 0; i < warp.size(); ++i) {
      EXPECT_EQ(warp[i], warp[i / 32 * 32]);
    }
    found.push_back(block);
  });
  EXPECT_THAT(found, testing::Each(found[0]));
}

__global__ void static_overrun(unsigned shift, int* out) {
  __shared__ int part[32];
  // By a pointer: with an index the other sanitizer would be first.
  int* first = part;
  first[threadIdx.x + shift] = 1;
  __syncthreads();
  out[threadIdx.x] = part[threadIdx.x];
}

// One element behind the end: of static and dynamic shared memory, and of an array.
TEST(EmulatorDeathTest, TheSanitizerFindsAnOverrunByOneElement) {
  if (!kSanitized) {
    GTEST_SKIP() << "built without it; cmake --workflow --preset asan";
  }
  std::vector<int> out(32);
  float sum = 0;
  const auto in_static = [&](unsigned shift) {
    launch("static", static_overrun, 1, 32, 0, nullptr, shift, out.data());
  };
  const auto in_dynamic = [&](unsigned shift) {
    launch("dynamic", dynamic_sum, 1, 32, 32 * sizeof(float), nullptr, shift, &sum);
  };
  const auto in_array = [&](unsigned threads) {
    launch("array", turn_round<true>, 1, threads, 0, nullptr, out.data());
  };
  in_static(0);
  in_dynamic(0);
  in_array(32);
  EXPECT_DEATH(in_static(1), "global-buffer-overflow");
  EXPECT_DEATH(in_dynamic(1), "heap-buffer-overflow");
  EXPECT_DEATH(in_array(33), "heap-buffer-overflow");
}

}  // namespace tandem::emulator_test

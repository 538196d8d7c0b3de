#pragma once

#include "tandem/kernels/cuda/tile_product.h"
#include "tandem/kernels/cuda/workspace.h"

/// Products whose tiles are too few for a GPU are divided along k, too: each block
/// computes one part of a tile. The parts' sums are added in the same kernel, and in
/// the same order whichever block is first: blocks of a group of eight parts leave
/// theirs in memory, and the last to come adds them up; of the groups, the last to come
/// adds theirs, and goes on with the tile's sums. One block for all parts would read
/// for too long (58 parts of float32 are 950 KB, and a multiprocessor gets some 64
/// bytes a cycle), and a kernel of its own would wait for all tiles.
///
/// Nobody waits for another block, so all of them need not run at once.

namespace tandem::cuda {

constexpr unsigned kSumsOfThread = 32;
constexpr unsigned kSumsOfTile = kTileThreads * kSumsOfThread;
constexpr unsigned kPartsOfGroup = 8;

/// Blocks of a product, numbered: rows of tiles, columns of them, then parts.
struct TileGrid {
  unsigned rows = 0;
  unsigned columns = 0;
  unsigned parts = 0;

  __host__ __device__ unsigned tiles() const {
    return rows * columns;
  }
  __host__ __device__ unsigned blocks() const {
    return tiles() * parts;
  }
  __host__ __device__ unsigned groups() const {
    return (parts + kPartsOfGroup - 1) / kPartsOfGroup;
  }

  // Of a tile: the sums of its parts, then of its groups, and the counters of those.
  WorkspaceSize workspace() const {
    if (parts <= 1) {
      return {};
    }
    return {
        int64_t{tiles()} * (parts + groups()) * kSumsOfTile,
        int64_t{tiles()} * (groups() + 1)};
  }
};

/// Where a block is in such a grid.
struct TilePlace {
  unsigned row;
  unsigned column;
  unsigned tile;
  unsigned part;
};

__device__ __forceinline__ TilePlace place_in(const TileGrid& grid, unsigned block) {
  const unsigned tile = block % grid.tiles();
  return {tile % grid.rows, tile / grid.rows, tile, block / grid.tiles()};
}

/// The values of k, from `begin` to `end`, that a block adds up.
struct KRange {
  unsigned begin;
  unsigned end;
};

__device__ __forceinline__ KRange
range_of(const TilePlace& place, int depth_of_part, int depth) {
  const unsigned begin = place.part * static_cast<unsigned>(depth_of_part);
  const unsigned end = begin + static_cast<unsigned>(depth_of_part);
  return {
      begin, end < static_cast<unsigned>(depth) ? end : static_cast<unsigned>(depth)};
}

/// Calls body(number, sum) for each of this thread's sums.
template <typename T, typename Body>
__device__ __forceinline__ void for_each_sum(Sums<T>& sums, Body&& body) {
  TANDEM_UNROLL
  for (unsigned i = 0; i < kSumsOfThread; ++i) {
    body(i, sums[i / 16][i / 4 % 4][i % 4]);
  }
}

/// Whether this block is the last of `count` to leave its sums, number `own`; then they
/// are the sums of numbers `first` to `first` + `count` - 1. All threads call it.
template <typename T>
__device__ __forceinline__ bool add_if_last(
    T* all, unsigned first, unsigned count, unsigned own, unsigned* counter,
    Sums<T>& sums) {
  if (count == 1) {
    return true;
  }
  // Of one number neighbouring threads' sums lie side by side.
  const auto of_thread = [&](unsigned number) {
    return all + int64_t{number} * kSumsOfTile + threadIdx.x;
  };
  for_each_sum(
      sums, [&](unsigned i, T& sum) { of_thread(own)[i * kTileThreads] = sum; });
  __threadfence();
  __syncthreads();
  // Behind the last stage's barrier nobody needs its shared memory any more.
  unsigned* before = dynamic_shared<unsigned>();
  if (threadIdx.x == 0) {
    *before = atomicAdd(counter, 1u);
    if (*before + 1 == count) {
      *counter = 0;
    }
  }
  __syncthreads();
  if (*before + 1 != count) {
    return false;
  }
  __threadfence();
  for_each_sum(sums, [](unsigned, T& sum) { sum = 0; });
  for (unsigned number = first; number < first + count; ++number) {
    // Not from a cache that does not see what other blocks wrote.
    for_each_sum(sums, [&](unsigned i, T& sum) {
      sum += __ldcg(of_thread(number) + i * kTileThreads);
    });
  }
  return true;
}

/// Whether this block, which computed one part of a tile, has come last: then `sums`
/// are those of all parts, and it is to write them. All threads call it.
template <typename T>
__device__ __forceinline__ bool add_parts(
    const TileGrid& grid, const Workspace<T>& workspace, const TilePlace& place,
    Sums<T>& sums) {
  if (grid.parts == 1) {
    return true;
  }
  const unsigned groups = grid.groups();
  T* parts =
      workspace.values + int64_t{place.tile} * (grid.parts + groups) * kSumsOfTile;
  unsigned* counters = workspace.counters + place.tile * (groups + 1);
  const unsigned group = place.part / kPartsOfGroup;
  const unsigned first = group * kPartsOfGroup;
  const unsigned left = grid.parts - first;
  const unsigned count = left < kPartsOfGroup ? left : kPartsOfGroup;
  if (!add_if_last(parts, first, count, place.part, counters + group, sums)) {
    return false;
  }
  T* of_groups = parts + int64_t{grid.parts} * kSumsOfTile;
  return add_if_last(of_groups, 0, groups, group, counters + groups, sums);
}

}  // namespace tandem::cuda

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "tandem/kernels/cuda/products.h"
#include "tandem/kernels/cuda/tile_parts.h"

namespace tandem::cuda {

/// Whether the product of these sizes can be counted in 31 bits, with room for what a
/// last tile has more.
inline bool is_small(int64_t a, int64_t b, int64_t c = 1, int64_t d = 1) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - 0x10000;
  int64_t product = 1;
  for (const int64_t factor : {a, b, c, d}) {
    if (factor > kMost) {
      return false;
    }
    product *= factor;
    if (product > kMost) {
      return false;
    }
  }
  return true;
}

/// How many blocks a multiprocessor is to hold, which bounds the registers of each
/// thread: 4 blocks leave it 128, 3 leave 168, 2 leave 255. More are needed for sums of
/// float64, for vectors of plain products, and for many values on their way.
template <typename Tile, typename Arithmetic>
constexpr int blocks_per_processor() {
  constexpr bool kWide = sizeof(typename Arithmetic::Value) == sizeof(double);
  constexpr unsigned kOnTheirWay =
      (Tile::kRows + Tile::kColumns) * Tile::kDepth / kTileThreads;
  return kWide ? 2 : Arithmetic::kMatrices && kOnTheirWay <= 32 ? 4 : 3;
}

/// Whether the tiles of a product with so many columns are 128 x 32, which are as wide
/// as it is, or else 64 x 64.
inline bool is_narrow(int64_t columns) {
  return columns <= kWarpSide;
}

/// A product's tiles, each computed by one block.
inline TileGrid grid_of(int64_t rows, int64_t columns, bool narrow) {
  return {blocks_of(rows, narrow ? 128 : 64), blocks_of(columns, narrow ? 32 : 64), 1};
}

/// The blocks of a product whose k is divided, and how much of k each has; the last
/// part may have less.
struct Division {
  TileGrid grid;
  int64_t depth_of_part;
};

/// In `parts` parts or fewer, of whole stages.
inline Division divide(TileGrid grid, int64_t depth, int64_t parts) {
  constexpr int64_t kDeepestStage = 32;
  const int64_t each =
      std::max(1u, blocks_of(depth, parts * kDeepestStage)) * kDeepestStage;
  grid.parts = std::max(1u, blocks_of(depth, each));
  return {grid, each};
}

/// Calls body(tile, arithmetic) for products of this kind; what the two are of is in
/// their types.
template <typename Arithmetic, typename Body>
void with_sides(bool narrow, Body&& body) {
  if (narrow) {
    body(Tile<Arithmetic, 128, 32>{}, Arithmetic{});
  } else {
    body(Tile<Arithmetic, 64, 64>{}, Arithmetic{});
  }
}

template <typename T, typename Body>
void with_tile(Products products, bool narrow, Body&& body) {
  if constexpr (std::is_same_v<T, float>) {
    switch (products) {
      case Products::full:
        return with_sides<PlainProducts<float>>(narrow, body);
      case Products::tf32:
        return with_sides<Tf32Products>(narrow, body);
      case Products::bf16:
        return with_sides<Bf16Products>(narrow, body);
    }
  }
  if (products != Products::full) {
    throw ConfigError(
        "[cuda] products of tf32 or bf16 were asked for, and values are float64; take "
        "full products, or float32");
  }
  with_sides<PlainProducts<T>>(narrow, body);
}

/// launch() of a kernel over tiles.
template <typename Arithmetic, typename... Parameters, typename... Arguments>
void launch_tiles(
    const char* name, void (*kernel)(Parameters...), unsigned blocks,
    size_t shared_bytes, Stream stream, Arguments... arguments) {
  if constexpr (Arithmetic::kMatrices) {
    require_matrix_products(name, kernel);
  }
  launch(name, kernel, blocks, kTileThreads, shared_bytes, stream, arguments...);
}

}  // namespace tandem::cuda

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/cuda/emulator/block_emulator.h"

namespace tandem {

constexpr int kOrders = 4;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

/// Calls `body` with threads and blocks in several orders.
template <typename Body>
void in_orders(Body&& body) {
  using emulator::Order;
  for (const auto order : {Order::forward, Order::backward}) {
    SCOPED_TRACE(order == Order::forward ? "forward" : "backward");
    emulator::set_order(order);
    body();
  }
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE("random order " + std::to_string(seed));
    emulator::set_order(Order::random, seed);
    body();
  }
  emulator::set_order(Order::forward);
}

/// Whether the values have the same bits; the vector is as long as the array.
template <typename T>
bool same_bits(const std::vector<T>& values, const T* expected) {
  return values.empty() ||
         std::memcmp(values.data(), expected, values.size() * sizeof(T)) == 0;
}

/// Sizes around a warp, a block and a tile.
inline const std::vector<int64_t> kSizes = {0,   1,    31,   32,   33,  255,
                                            257, 1023, 1024, 1025, 2500};

}  // namespace tandem

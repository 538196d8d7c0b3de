#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// A slice of the gradient arena that is reduced in one operation.
struct Bucket {
  ArenaRange range;
  // The slots in it.
  std::vector<size_t> slots;
};

/// Cuts the trainable segments into buckets, front to back: the order in which
/// gradients become ready.
///
/// `overlap`: a bucket closes before it would pass `bucket_bytes`; a larger
/// parameter gets its own. `parameter`: one slot each. `flat`: one per segment.
/// The plan depends on nothing else, so every rank computes the same one.
///
/// Throws ConfigError unless bucket_bytes > 0.
std::vector<Bucket> plan_buckets(
    const ArenaLayout& layout, SyncMode sync, int64_t bucket_bytes);

/// Equal on two ranks exactly when their plans are.
std::string describe(const std::vector<Bucket>& buckets);

}  // namespace tandem

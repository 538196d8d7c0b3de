#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// A range of the gradient arena that is reduced in one operation.
struct Bucket {
  ArenaRange range;
  // Indices of the slots in the bucket.
  std::vector<size_t> slots;
};

/// Divides the trainable segments into buckets from front to back. Gradients become
/// ready in this order.
///
/// With SyncMode::overlap, a bucket has at most `bucket_bytes` bytes, or contains a
/// single larger parameter. With `parameter`, a bucket is one slot. With `flat`, a
/// bucket is one segment. The plan depends only on the arguments, so every rank
/// computes the same plan.
///
/// Throws ConfigError unless bucket_bytes > 0.
std::vector<Bucket> plan_buckets(
    const ArenaLayout& layout, SyncMode sync, int64_t bucket_bytes);

/// Returns a text that describes the plan. Ranks compare these texts: two plans are
/// equal exactly if their texts are equal.
std::string describe(const std::vector<Bucket>& buckets);

}  // namespace tandem

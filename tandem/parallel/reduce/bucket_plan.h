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

/// Divides the trainable segments into buckets from front to back, which is the order
/// in which gradients become ready.
///
/// `overlap`: a bucket has at most `bucket_bytes` bytes, or a single larger parameter.
/// `parameter`: a bucket is one slot. `flat`: a bucket is one segment. The plan depends
/// only on the arguments, so every rank computes the same plan.
///
/// Throws ConfigError unless bucket_bytes > 0.
std::vector<Bucket> plan_buckets(
    const ArenaLayout& layout, SyncMode sync, int64_t bucket_bytes);

/// Returns a description of the plan. Two plans are equal if and only if their
/// descriptions are.
std::string describe(const std::vector<Bucket>& buckets);

}  // namespace tandem

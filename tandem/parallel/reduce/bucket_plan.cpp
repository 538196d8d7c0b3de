#include "tandem/parallel/reduce/bucket_plan.h"

#include <limits>

#include "tandem/base/error.h"

namespace tandem {

namespace {

int64_t most_elements(SyncMode sync, int64_t bucket_bytes, const Segment& segment) {
  switch (sync) {
    case SyncMode::parameter:
      return 0;
    case SyncMode::flat:
      return std::numeric_limits<int64_t>::max();
    default:
      return bucket_bytes / static_cast<int64_t>(c10::elementSize(segment.dtype));
  }
}

}  // namespace

std::vector<Bucket> plan_buckets(
    const ArenaLayout& layout, SyncMode sync, int64_t bucket_bytes) {
  if (bucket_bytes <= 0) {
    throw ConfigError(
        "[data_parallel] bucket_bytes is " + std::to_string(bucket_bytes) +
        ", expected 1 or more; change --bucket-bytes");
  }
  std::vector<Bucket> buckets;
  for (const auto& whole : layout.trainable_ranges()) {
    const auto& segment = layout.segments()[static_cast<size_t>(whole.segment)];
    const int64_t most = most_elements(sync, bucket_bytes, segment);
    bool open = false;
    for (size_t i = 0; i < layout.slots().size(); ++i) {
      const Slot& slot = layout.slots()[i];
      if (slot.segment != whole.segment) {
        continue;
      }
      if (open && slot.offset + slot.numel - buckets.back().range.begin > most) {
        open = false;
      }
      if (!open) {
        buckets.push_back({{whole.segment, slot.offset, slot.offset}, {}});
        open = true;
      }
      buckets.back().range.end = slot.offset + slot.numel;
      buckets.back().slots.push_back(i);
    }
  }
  return buckets;
}

std::string describe(const std::vector<Bucket>& buckets) {
  std::string lines;
  for (const auto& bucket : buckets) {
    lines += std::to_string(bucket.range.segment) + " " +
             std::to_string(bucket.range.begin) + " " +
             std::to_string(bucket.range.end) + "\n";
  }
  return lines;
}

}  // namespace tandem

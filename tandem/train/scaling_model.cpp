#include "tandem/train/scaling_model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "tandem/base/error.h"

namespace tandem {

namespace {

void want(bool holds, const std::string& what) {
  if (!holds) {
    throw ConfigError("[plan] " + what);
  }
}

void check(const ScalingInputs& inputs, int nodes) {
  const auto is_time = [](double value) { return std::isfinite(value) && value >= 0; };
  want(
      std::isfinite(inputs.step_ms) && inputs.step_ms > 0,
      "the time of a step must be more than 0 ms; change --step-ms");
  want(nodes >= 1, "there must be at least 1 node; change --nodes");
  want(
      inputs.ranks_per_node >= 1,
      "a node needs at least 1 rank; change --ranks-per-node");
  want(
      std::isfinite(inputs.crowding) && inputs.crowding >= 1,
      "crowding is below 1, but no step is faster next to others than alone; change "
      "--crowding to 1 or more");
  want(
      nodes == 1 || inputs.bandwidth > 0,
      "several nodes need a link; set --bandwidth-gbit");
  want(
      is_time(inputs.local_ms) && is_time(inputs.latency_ms) &&
          is_time(inputs.comm_cpu_ms),
      "times must be finite and not negative; change --local-ms, --latency-us or "
      "--comm-cpu-ms");
  for (const auto& bucket : inputs.buckets) {
    want(
        is_time(bucket.bytes) && is_time(bucket.lead_ms),
        "a bucket's bytes and lead must be finite and not negative; change --buckets");
  }
}

}  // namespace

ScalingPoint predict_step(const ScalingInputs& inputs, int nodes) {
  check(inputs, nodes);
  const double n = nodes;
  // A ring sends 2 (n - 1) messages in sequence, each with 1 / n of the bytes.
  const double messages = 2 * (n - 1);
  double comm_ms = 0;
  double end_ms = 0;
  // Iterates from the last bucket to the first. Assumes that this bucket is sent as
  // soon as it is complete, and that the later buckets follow without a pause. The
  // argument of max() is then the time from the end of backward to the end of
  // communication. `end_ms` is the largest of these times.
  for (auto bucket = inputs.buckets.rbegin(); bucket != inputs.buckets.rend();
       ++bucket) {
    comm_ms += messages == 0 ? 0
                             : messages * (inputs.latency_ms +
                                           1000 * bucket->bytes / n / inputs.bandwidth);
    end_ms = std::max(end_ms, comm_ms - inputs.crowding * bucket->lead_ms);
  }
  // Communication that overlaps with backward still uses CPU time that backward needs.
  const double cpu_ms = inputs.comm_cpu_ms * messages / n;
  const double cpu_share = comm_ms > 0 ? std::min(1.0, cpu_ms / comm_ms) : 0;
  ScalingPoint point;
  point.nodes = nodes;
  point.ranks = nodes * inputs.ranks_per_node;
  point.comm_ms = comm_ms;
  point.exposed_ms = inputs.local_ms + end_ms + (comm_ms - end_ms) * cpu_share;
  point.step_ms = inputs.crowding * inputs.step_ms + point.exposed_ms;
  point.efficiency = inputs.step_ms / point.step_ms;
  return point;
}

std::vector<GradientBucket> even_buckets(
    double bytes, double bucket_bytes, double window_ms) {
  want(
      std::isfinite(bytes) && bytes >= 0,
      "the bytes of gradients must be finite and not negative; change "
      "--gradient-bytes");
  want(
      bucket_bytes >= 1 && bytes / bucket_bytes <= 1e6,
      "a bucket needs at least 1 byte, and at most a million buckets are allowed; "
      "change --bucket-bytes");
  const auto count = static_cast<int>(std::ceil(bytes / bucket_bytes));
  std::vector<GradientBucket> buckets;
  for (int i = 1; i <= count; ++i) {
    buckets.push_back({bytes / count, window_ms * (count - i) / count});
  }
  return buckets;
}

std::vector<GradientBucket> flat_bucket(const std::vector<GradientBucket>& buckets) {
  GradientBucket all;
  for (const auto& bucket : buckets) {
    all.bytes += bucket.bytes;
  }
  return {all};
}

}  // namespace tandem

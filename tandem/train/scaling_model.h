#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

/// Gradients that travel in one message, and how long before the end of backward
/// they are complete: the time in which they can travel unseen.
struct GradientBucket {
  double bytes = 0;
  double lead_ms = 0;
};

/// What a data-parallel step's time follows from; docs/scaling.md has the formula and
/// where it comes from. Times are of one rank with its own batch, which stays the
/// same whatever the number of nodes.
struct ScalingInputs {
  // A whole step of one rank alone, loader and optimizer included.
  double step_ms = 0;
  // In the order in which they are complete, and are sent.
  std::vector<GradientBucket> buckets;

  // --- a node ---
  int ranks_per_node = 1;
  // How many times as long a step takes when all ranks of a node compute at once:
  // they share memory, and take turns where there are more of them than cores.
  double crowding = 1;
  // Time per step of adding up gradients among the ranks of a node. It is work of
  // the same cores, so backward hides none of it.
  double local_ms = 0;

  // --- between nodes ---
  // Bytes per second of a node's link, each way.
  double bandwidth = 0;
  // Of one message from node to node.
  double latency_ms = 0;
  // Of a rank's own core, for sending and adding all buckets with one other node.
  double comm_cpu_ms = 0;
};

struct ScalingPoint {
  int nodes = 1;
  int ranks = 1;
  double step_ms = 0;
  // Between nodes, hidden or not.
  double comm_ms = 0;
  // What communication of either kind adds to the step.
  double exposed_ms = 0;
  // Samples per second, against as many ranks as fast as one alone.
  double efficiency = 1;
};

/// The step on `nodes` nodes: ranks of a node add up first, then one rank per node in
/// a ring, bucket by bucket. Throws ConfigError for inputs out of range. Source of the
/// ring's cost: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters
/// of workstations", JPDC 2009.
ScalingPoint predict_step(const ScalingInputs& inputs, int nodes);

/// Buckets of `bucket_bytes` whose gradients come evenly during the last `window_ms`
/// of backward; for who knows no better.
std::vector<GradientBucket> even_buckets(
    double bytes, double bucket_bytes, double window_ms);

/// All gradients in one message after backward (`sync=flat`).
std::vector<GradientBucket> flat_bucket(const std::vector<GradientBucket>& buckets);

}  // namespace tandem

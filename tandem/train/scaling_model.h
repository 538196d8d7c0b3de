#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

/// Gradients that are reduced in one message.
struct GradientBucket {
  double bytes = 0;
  // Time between the completion of the gradients and the end of backward, in
  // milliseconds. Backward hides communication during this time.
  double lead_ms = 0;
};

/// Measurements from which the time of a data-parallel step is predicted.
/// docs/about/scaling.md has the formula and its derivation. Times are of one rank. Its
/// batch is the same for any number of nodes.
struct ScalingInputs {
  // Time of a whole step of one rank alone, with loader and optimizer.
  double step_ms = 0;
  // In the order in which they are complete and sent.
  std::vector<GradientBucket> buckets;

  // --- one node ---
  int ranks_per_node = 1;
  // Factor by which a step is slower if all ranks of a node compute at once. They share
  // memory bandwidth, and cores if there are more ranks than cores.
  double crowding = 1;
  // Time per step of the reduction among the ranks of a node. The same cores do it, so
  // backward does not hide it.
  double local_ms = 0;

  // --- between nodes ---
  // Bandwidth of a node's link in each direction, in bytes per second.
  double bandwidth = 0;
  // Latency of one message between nodes.
  double latency_ms = 0;
  // CPU time of a rank to send and add all buckets with one other node.
  double comm_cpu_ms = 0;
};

/// Predicted step at one number of nodes.
struct ScalingPoint {
  int nodes = 1;
  int ranks = 1;
  double step_ms = 0;
  // Communication between nodes, hidden or not.
  double comm_ms = 0;
  // Time that communication, within and between nodes, adds to the step.
  double exposed_ms = 0;
  // Samples per second per rank, relative to one rank alone.
  double efficiency = 1;
};

/// Predicts the step on `nodes` nodes. The ranks of a node reduce first, then one rank
/// per node in a ring, bucket by bucket. Throws ConfigError for inputs out of range.
/// Source of the ring's cost: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms
/// for clusters of workstations", JPDC 2009.
ScalingPoint predict_step(const ScalingInputs& inputs, int nodes);

/// Returns buckets of at most `bucket_bytes` for `bytes` of gradients, completed evenly
/// during the last `window_ms` of backward. For models without measured buckets.
std::vector<GradientBucket> even_buckets(
    double bytes, double bucket_bytes, double window_ms);

/// Returns all gradients as one message after backward (`sync=flat`).
std::vector<GradientBucket> flat_bucket(const std::vector<GradientBucket>& buckets);

}  // namespace tandem

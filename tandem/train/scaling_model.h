#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

/// Gradients that are reduced in one message.
struct GradientBucket {
  double bytes = 0;
  // Time from the completion of the bucket's gradients to the end of backward, in
  // milliseconds. Communication during this time overlaps with backward.
  double lead_ms = 0;
};

/// Measurements from which the time of a data-parallel step is predicted.
/// docs/about/scaling.md has the formula and its derivation. Times are those of one
/// rank. The batch size of a rank does not depend on the number of nodes.
struct ScalingInputs {
  // Time of a whole step of a single rank, including loader and optimizer, in
  // milliseconds.
  double step_ms = 0;
  // Buckets in the order in which their gradients become complete and are sent.
  std::vector<GradientBucket> buckets;

  // --- one node ---
  int ranks_per_node = 1;
  // Factor by which a step takes longer if all ranks of a node compute at the same
  // time. The ranks share memory bandwidth, and cores if there are more ranks than
  // cores.
  double crowding = 1;
  // Time per step to reduce gradients among the ranks of a node, in milliseconds. The
  // reduction runs on the cores that compute backward, so it does not overlap with
  // backward.
  double local_ms = 0;

  // --- between nodes ---
  // Bandwidth of a node's link in each direction, in bytes per second.
  double bandwidth = 0;
  // Latency of one message between nodes, in milliseconds.
  double latency_ms = 0;
  // CPU time of a rank per step for sending and adding all buckets, in milliseconds,
  // measured between two nodes.
  double comm_cpu_ms = 0;
};

/// Prediction for a step on `nodes` nodes.
struct ScalingPoint {
  int nodes = 1;
  int ranks = 1;
  double step_ms = 0;
  // Time of communication between nodes in a step, including the part that overlaps
  // with backward.
  double comm_ms = 0;
  // Time that communication, within and between nodes, adds to the step.
  double exposed_ms = 0;
  // Samples per second per rank, relative to one rank alone.
  double efficiency = 1;
};

/// Predicts a step on `nodes` nodes. First the ranks of each node reduce their
/// gradients; then one rank per node reduces them in a ring, bucket by bucket. Throws
/// ConfigError if an input is out of range. Source of the ring's cost: Patarasuk, Yuan,
/// "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.
ScalingPoint predict_step(const ScalingInputs& inputs, int nodes);

/// Splits `bytes` of gradients into equal buckets of at most `bucket_bytes`, for models
/// whose buckets were not measured. Assumes that the buckets become complete at equal
/// intervals during the last `window_ms` of backward.
std::vector<GradientBucket> even_buckets(
    double bytes, double bucket_bytes, double window_ms);

/// Combines all buckets into a single bucket, which is sent after backward
/// (`sync=flat`).
std::vector<GradientBucket> flat_bucket(const std::vector<GradientBucket>& buckets);

}  // namespace tandem

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/command.h"
#include "tandem/train/scaling_model.h"

namespace tandem::app {

/// What `tandem plan` predicts from, wherever it comes from.
struct PlanInputs {
  ScalingInputs scaling;
  // Samples per rank and step; 0 when nobody said.
  int64_t batch_size = 0;
  // Where step and gradients come from, for the reader.
  std::string origin;
};

/// Runs `tandem bench step` with these flags, alone and as often as a node has ranks at
/// once, and `tandem bench allreduce` for the ranks of a node (shm, where this build
/// has it) and for Gloo's processor time.
/// `halves`: gradients travel in 16 bits. Takes some seconds. Throws the bench's own
/// error.
PlanInputs measure_inputs(const Arguments& step_flags, int ranks_per_node, bool halves);

/// Reads the run directory of a data-parallel run on one host, which is the node: its
/// ranks, the median step of metrics.jsonl with all that they add up inside, and the
/// bytes that a rank sent by summary.json.
/// `gradient_bytes`: of all gradients, 0 to take the run's; a run of one rank sends
/// none. Buckets come evenly during `overlap` of the step. Throws DataError for files
/// that are missing or broken, ConfigError for a run that cannot tell.
PlanInputs inputs_from_run(
    const std::string& directory, double gradient_bytes, double bucket_bytes,
    double overlap);

/// "5696@23.1,75264@0": bytes and lead in ms, as `bench step --json` tells them.
/// Throws ConfigError.
std::vector<GradientBucket> parse_buckets(const std::string& text);

/// "1..1024" doubles from the first to the last; "1,2,3" is a list. Throws
/// ConfigError.
std::vector<int> parse_nodes(const std::string& text);

}  // namespace tandem::app

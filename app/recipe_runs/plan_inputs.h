#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/command.h"
#include "tandem/train/scaling_model.h"

namespace tandem::app {

/// Inputs of the prediction of `tandem plan`.
struct PlanInputs {
  ScalingInputs scaling;
  // Samples per rank and step; 0 if unknown.
  int64_t batch_size = 0;
  // Source of step and gradients, for the output.
  std::string origin;
};

/// Measures the inputs, which takes some seconds: runs `tandem bench step` with these
/// flags, once alone and once as `ranks_per_node` processes at the same time, and
/// `tandem bench allreduce` for the ranks of a node (shm, or gloo if this build has no
/// shm) and for the processor time of Gloo. `halves`: gradients have 16 bits. Throws
/// the error of the bench.
PlanInputs measure_inputs(const Arguments& step_flags, int ranks_per_node, bool halves);

/// Reads the directory of a data-parallel run on one host, which stands for a node: the
/// number of ranks, the median step of metrics.jsonl, which includes the all-reduce of
/// the host, and the bytes per rank in summary.json.
///
/// `gradient_bytes`: size of all gradients; 0: that of the run. A run of one rank sends
/// none. Buckets become ready evenly during the share `overlap` of the step. Throws
/// DataError for missing or damaged files, ConfigError for a run without these figures.
PlanInputs inputs_from_run(
    const std::string& directory, double gradient_bytes, double bucket_bytes,
    double overlap);

/// Parses bytes and leads in ms, such as "5696@23.1,75264@0", the format of
/// `bench step --json`. Throws ConfigError.
std::vector<GradientBucket> parse_buckets(const std::string& text);

/// Parses numbers of nodes: "1..1024" doubles from the first to the last, and "1,2,3"
/// is a list. Throws ConfigError.
std::vector<int> parse_nodes(const std::string& text);

}  // namespace tandem::app

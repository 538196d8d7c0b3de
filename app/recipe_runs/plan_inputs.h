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
  // Source of the step time and the gradients, as text for the output.
  std::string origin;
};

/// Measures the inputs on this machine, which takes some seconds. Runs `tandem bench
/// step` with `step_flags`: first one process, then `ranks_per_node` processes at the
/// same time. Runs `tandem bench allreduce` among the ranks of a node (shm, or gloo if
/// this build has no shm), and with gloo between two ranks for the CPU time of
/// communication.
///
/// `halves`: gradients are sent as 16-bit numbers. Throws the error of a failed bench.
PlanInputs measure_inputs(const Arguments& step_flags, int ranks_per_node, bool halves);

/// Reads the inputs from the directory of a data-parallel run on one host, which
/// represents a node: the number of ranks, the median step time in metrics.jsonl, and
/// the bytes of the gradients in summary.json. The step time includes the all-reduce
/// inside the host.
///
/// `gradient_bytes`: size of all gradients; 0 for the size in the run, which a run of
/// one rank does not have. `overlap`: share of the step, at its end, in which buckets
/// become ready at even intervals. Throws DataError for missing or damaged files, and
/// ConfigError for a run that does not give these inputs.
PlanInputs inputs_from_run(
    const std::string& directory, double gradient_bytes, double bucket_bytes,
    double overlap);

/// Parses the sizes of buckets in bytes and their `lead_ms`, such as
/// "5696@23.1,75264@0", as `tandem plan --json` prints them. Throws ConfigError.
std::vector<GradientBucket> parse_buckets(const std::string& text);

/// Parses numbers of nodes: a list such as "1,2,3", or a range such as "1..1024", which
/// doubles the number from the first to the last. Throws ConfigError.
std::vector<int> parse_nodes(const std::string& text);

}  // namespace tandem::app

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/command.h"
#include "app/recipe_runs/memory_plan.h"
#include "tandem/train/scaling_model.h"

namespace tandem::app {

/// Inputs from which `tandem plan` predicts the time of a step.
struct PlanInputs {
  ScalingInputs scaling;
  // Samples per rank and step; 0 if unknown.
  int64_t batch_size = 0;
  // Sizes of tensors; nullopt if they were not measured.
  std::optional<TensorBytes> tensors;
  // Source of the step time and the gradients, as text for the output.
  std::string origin;
};

/// Measures the inputs on this machine, which takes some seconds. Runs `tandem bench
/// step` with `step_flags`: first one process, then `ranks_per_node` processes at the
/// same time. Runs `tandem bench allreduce` among the ranks of a node, with shm, or
/// with gloo if this build has no shm. Also runs it between two ranks with gloo, to
/// measure the CPU time of communication.
///
/// `halves`: whether gradients are sent in a 16-bit format. Throws the error of a bench
/// that fails.
PlanInputs measure_inputs(const Arguments& step_flags, int ranks_per_node, bool halves);

/// Reads the inputs from the directory of a data-parallel or sequential run on one
/// host. The host represents a node. The inputs are the number of ranks, the median
/// step time in metrics.jsonl, and the bytes of the gradients in summary.json. The step
/// time includes the all-reduce on the host.
///
/// `gradient_bytes`: size of all gradients; 0 to read it from summary.json, which has
/// no such size for a run of one rank. `overlap`: fraction of the step time, at the end
/// of the step, in which the buckets become ready at equal intervals. Throws DataError
/// for missing or damaged files, and ConfigError if the run does not have these inputs.
PlanInputs inputs_from_run(
    const std::string& directory, double gradient_bytes, double bucket_bytes,
    double overlap);

/// Parses the sizes of buckets in bytes and their `lead_ms`, such as
/// "5696@23.1,75264@0", as `tandem plan --json` prints them. Throws ConfigError.
std::vector<GradientBucket> parse_buckets(const std::string& text);

/// Parses numbers of nodes: a list such as "1,2,3", or a range such as "1..1024", which
/// means 1, 2, 4 and so on up to 1024. Throws ConfigError.
std::vector<int> parse_nodes(const std::string& text);

}  // namespace tandem::app

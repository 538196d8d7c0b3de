#pragma once

#include <nlohmann/json_fwd.hpp>

#include "app/report/run_table.h"
#include "tandem/config/options/strategy_options.h"

namespace tandem::app {

/// Sizes of a rank's tensors without sharding, in bytes, which `tandem bench step`
/// measures.
struct TensorBytes {
  double parameters = 0;
  // Without frozen parameters. Gradients have the same size.
  double trained = 0;
  double optimizer = 0;
  // Values of a micro-batch that are kept for backward; 0 if unknown.
  double activations = 0;
  double largest_bucket = 0;
};

/// Reads the object "tensor_bytes" of `tandem bench step`.
TensorBytes tensor_bytes_of(const nlohmann::ordered_json& step);

/// Returns the bytes of a rank's tensors during a step, if `ranks` ranks divide the
/// values of `shard`. With `gradients` and `parameters`, up to two buckets are complete
/// at a time.
double bytes_per_rank(const TensorBytes& bytes, Sharding shard, int ranks);

/// Returns the bytes of gradients and parameters that a rank sends in a step.
double bytes_sent(const TensorBytes& bytes, Sharding shard, int ranks);

/// Returns a table with a row for each kind of sharding and two columns for each of two
/// numbers of ranks, which may be equal.
RunTable memory_table(const TensorBytes& bytes, int fewest_ranks, int most_ranks);
nlohmann::ordered_json memory_json(
    const TensorBytes& bytes, int fewest_ranks, int most_ranks);

}  // namespace tandem::app

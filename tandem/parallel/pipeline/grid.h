#pragma once

#include <cstdint>

namespace tandem {

/// Where a rank stands in stages x replicas.
///
/// The ranks of one pipeline follow each other: rank = replica * stages + stage.
/// Activations travel in every micro-batch, gradients once a step, so the stages of
/// a pipeline are what should share a host.
struct Grid {
  int64_t stages = 1;
  int64_t replicas = 1;
  int stage = 0;
  int replica = 0;
};

/// 0 for `stages` or `replicas`: as many as the other leaves; for both: one pipeline
/// over all ranks. A pure function.
///
/// Throws ConfigError that says what is possible, unless stages * replicas ==
/// world_size.
Grid make_grid(int64_t stages, int64_t replicas, int rank, int world_size);

}  // namespace tandem

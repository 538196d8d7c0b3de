#pragma once

#include <cstdint>

namespace tandem {

/// Position of a rank in a grid of pipeline stages x replicas.
///
/// The ranks of one pipeline are consecutive: rank = replica * stages + stage. Stages
/// exchange activations for every micro-batch, but replicas reduce gradients only once
/// per step. So the stages of one pipeline should be on one host.
struct Grid {
  int64_t stages = 1;
  int64_t replicas = 1;
  int stage = 0;
  int replica = 0;
};

/// Returns the position of `rank` in the grid.
///
/// If `stages` or `replicas` is 0, computes it from the other argument. If both are 0,
/// makes one pipeline of all ranks.
///
/// Throws ConfigError with the possible divisions unless stages * replicas ==
/// world_size.
Grid make_grid(int64_t stages, int64_t replicas, int rank, int world_size);

}  // namespace tandem

#pragma once

#include <cstdint>

#include "tandem/config/name_patterns.h"
#include "tandem/config/options/exec_options.h"

namespace tandem {

/// The layers whose values backward computes again. At most one member is set.
struct RecomputeChoice {
  // Layers by name.
  NamePatterns patterns;
  // Number of layers in each segment.
  int64_t every = 0;
  // Limit for the choice by memory, in bytes.
  int64_t memory = 0;

  bool is_none() const {
    return patterns.empty() && every == 0 && memory == 0;
  }
};

/// Parses `recompute` and `memory` of the options. Throws ConfigError for bad values.
[[nodiscard]] RecomputeChoice recompute_choice(const ExecOptions& options);

}  // namespace tandem

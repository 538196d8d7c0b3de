#pragma once

#include <string>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// What a file's tensors must be to go into a model's.
enum class Fit {
  // Each target has its source.
  complete,
  // And each source its target: strict=True.
  exact,
};

/// Throws ConfigError that names the first target which `sources`, read from `path`,
/// lack or have in another shape, and with `exact` the first source that no target
/// wants. `part` goes before the message, in brackets. Comes before copy_values(): all
/// or nothing.
void check_fits(
    const std::string& part, const std::string& path,
    const std::vector<NamedTensor>& sources, const std::vector<NamedTensor>& targets,
    Fit fit);

/// Copies by name into the targets, in place, converted to their dtypes.
void copy_values(
    const std::vector<NamedTensor>& sources, const std::vector<NamedTensor>& targets);

}  // namespace tandem

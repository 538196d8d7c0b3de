#pragma once

#include <string>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// Rules by which a file's tensors must match a model's.
enum class Fit {
  // Each target has a source.
  complete,
  // Each target has a source, and each source a target (strict=True).
  exact,
};

/// Throws ConfigError with the first target which `sources`, read from `path`, lack or
/// have in another shape, and with `exact` the first source without a target. `part`
/// precedes the message, in brackets. Call it before copy_values(), so that either all
/// or no tensors change.
void check_fits(
    const std::string& part, const std::string& path,
    const std::vector<NamedTensor>& sources, const std::vector<NamedTensor>& targets,
    Fit fit);

/// Copies sources to the targets of the same names, in place, converted to their
/// dtypes.
void copy_values(
    const std::vector<NamedTensor>& sources, const std::vector<NamedTensor>& targets);

}  // namespace tandem

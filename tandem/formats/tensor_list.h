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

/// Throws ConfigError with the first target that is missing in `sources` or has another
/// shape there. With Fit::exact, also throws for the first source without a target.
/// `path` is the file of the sources, and `part` precedes the message in brackets. Call
/// it before copy_values(), so that either all tensors change or none.
void check_fits(
    const std::string& part, const std::string& path,
    const std::vector<NamedTensor>& sources, const std::vector<NamedTensor>& targets,
    Fit fit);

/// Copies sources to the targets of the same names, in place, converted to the targets'
/// dtypes.
void copy_values(
    const std::vector<NamedTensor>& sources, const std::vector<NamedTensor>& targets);

}  // namespace tandem

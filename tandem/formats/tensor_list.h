#pragma once

#include <string>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// Returns the names of tensors, in their order.
[[nodiscard]] std::vector<std::string> tensor_names(
    const std::vector<NamedTensor>& tensors);

/// Rules for matching a file's tensors (sources) with a model's tensors (targets).
enum class Fit {
  // Each target has a source.
  complete,
  // Each target has a source, and each source a target (strict=True).
  exact,
};

/// Throws ConfigError with the first target that has no source, or whose source has
/// another shape. With Fit::exact, also throws for the first source without a target.
/// Call this function before copy_values(), so that either all tensors change or none.
///
/// `path` is the file of the sources, and `part` is the text in brackets at the start
/// of the error.
void check_fits(
    const std::string& part, const std::string& path,
    const std::vector<NamedTensor>& sources, const std::vector<NamedTensor>& targets,
    Fit fit);

/// Copies the values of sources into the targets with the same names. Converts the
/// values to the targets' dtypes.
void copy_values(
    const std::vector<NamedTensor>& sources, const std::vector<NamedTensor>& targets);

}  // namespace tandem

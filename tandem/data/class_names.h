#pragma once

#include <string>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

/// Renumbers the classes of a data set: each class gets the index of its name in
/// `names`. Does nothing if targets are values, if the data set has no class names, or
/// if its class names equal `names`.
///
/// `owner` is the owner of `names` for errors, such as "the training part". Throws
/// DataError if a class of the data set is not in `names`.
void renumber_classes(
    Dataset& data, const std::vector<std::string>& names, const std::string& owner);

}  // namespace tandem

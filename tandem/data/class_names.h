#pragma once

#include <string>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

/// Numbers the classes of a data set as in `names`: a class gets the index of its name
/// there. No effect if the data set has no names of classes, or equal names.
///
/// `owner` has the names, for errors, such as "the training part". Throws DataError if
/// a class of the data set is not in `names`.
void renumber_classes(
    Dataset& data, const std::vector<std::string>& names, const std::string& owner);

}  // namespace tandem

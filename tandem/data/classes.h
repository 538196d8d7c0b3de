#pragma once

#include <cstdint>

#include "tandem/data/dataset.h"

namespace tandem {

/// Converts targets of whole numbers to values (float32), of the shape {1} if a target
/// is a single number. Throws ConfigError if the targets are classes with names.
void convert_to_values(Dataset& data);

/// Sets Dataset::num_classes of all parts. If targets are classes, sets it to the
/// largest class of the training part plus 1, or to the number of class names if there
/// are more names. Classes that equal `ignored` do not count. If targets are values,
/// sets it to the number of values of a target. Does not change the number of classes
/// of a text. Throws DataError if a class of another part is greater than all classes
/// of the training part, or if a class is negative.
void count_classes(DatasetSplits& splits, int64_t ignored);

}  // namespace tandem

#pragma once

#include <string>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

/// Returns the file names of CIFAR-10's binary version
/// (https://www.cs.toronto.edu/~kriz/cifar.html): five with training images and one
/// with test images, in this order. Each file contains records of a label, 0 to 9, and
/// 3 x 32 x 32 bytes: red, green and blue.
const std::vector<std::string>& cifar_files();

/// Reads all six files from a folder, with any number of records. Throws DataError with
/// the first file that is missing or empty, or that has a partial record or an invalid
/// label.
DatasetSplits load_cifar_folder(const std::string& folder);

}  // namespace tandem

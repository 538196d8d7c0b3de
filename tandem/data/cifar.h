#pragma once

#include <string>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

/// The files of CIFAR-10's binary version
/// (https://www.cs.toronto.edu/~kriz/cifar.html): five with training images and one
/// with test images, in this order. Each holds records of a label, 0 to 9, and 3 x 32 x
/// 32 bytes: all of red, of green and of blue.
const std::vector<std::string>& cifar_files();

/// Reads all six from a folder; they may hold any number of records. Throws DataError
/// that names the file that is missing, empty, has a part of a record, or another
/// label.
DatasetSplits load_cifar_folder(const std::string& folder);

}  // namespace tandem

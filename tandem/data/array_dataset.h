#pragma once

#include <string>

#include "tandem/base/deadline.h"
#include "tandem/data/load_dataset.h"

namespace tandem {

/// Returns whether a path is a .npz file or a folder with x.npy or train_x.npy.
[[nodiscard]] bool has_arrays(const std::string& path);

/// Loads the NumPy arrays (npy.h) of a folder or a .npz file: inputs and targets of the
/// training part, train_x and train_y (x_train and y_train, or x and y), of the
/// validation part, val_x and val_y (also valid or validation), and of the test part,
/// test_x and test_y. Both other parts may be missing. Without a test part, the
/// validation part is the test part.
///
/// The first size of an array is the number of samples. DataOptions::shape replaces the
/// other sizes of inputs. Inputs of uint8 with two sizes are gray images, and get a
/// channel. A target of whole numbers with the size 1 is a class; targets of
/// floating-point numbers are values. Arrays of a folder are mapped, so they can be
/// larger than memory.
///
/// Throws DataError if an array is missing, or if inputs and targets have different
/// numbers of samples. Throws the errors of read_npy() and read_npz().
[[nodiscard]] DatasetSplits load_arrays(
    const DataRequest& request, const Deadline& deadline);

/// Loads a .npy file of inputs, without targets.
[[nodiscard]] Dataset load_array_inputs(const DataRequest& request);

}  // namespace tandem

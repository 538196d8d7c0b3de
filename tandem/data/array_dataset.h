#pragma once

#include <string>

#include "tandem/base/deadline.h"
#include "tandem/data/load_dataset.h"

namespace tandem {

/// Returns whether a path is a .npz file or a folder with x.npy or train_x.npy.
[[nodiscard]] bool has_arrays(const std::string& path);

/// Loads a data set from the NumPy arrays (npy.h) in a folder or a .npz file. The
/// training part is in the arrays train_x (inputs) and train_y (targets); x and y are
/// also accepted. The validation part is in val_x and val_y (or valid, validation), and
/// the test part in test_x and test_y. Names in the other order, such as x_train, are
/// also accepted. The validation and test parts may be missing. Without a test part,
/// the validation part is the test part.
///
/// The first size of an array is the number of samples. DataOptions::shape replaces the
/// other sizes of inputs. If a sample has two sizes and the type uint8, it is a gray
/// image, to which a dimension of one channel is added. Targets of whole numbers are
/// classes, one per sample or one per position; targets of floating-point numbers are
/// values. Arrays of a folder can be larger than memory (read_npy()).
///
/// Throws DataError if an array is missing, if inputs and targets have different
/// numbers of samples, or if parts have different types or shapes. Throws ConfigError
/// if DataOptions::shape does not fit. Throws the errors of read_npy() and read_npz().
[[nodiscard]] DatasetSplits load_arrays(
    const DataRequest& request, const Deadline& deadline);

/// Loads a .npy file of inputs, without targets.
[[nodiscard]] Dataset load_array_inputs(const DataRequest& request);

}  // namespace tandem

#pragma once

#include <string>

#include "tandem/base/deadline.h"
#include "tandem/data/load_dataset.h"

namespace tandem {

/// Returns whether a path is a .csv file or a folder with train.csv.
[[nodiscard]] bool has_table(const std::string& path);

/// Loads a table (csv.h). The columns in DataOptions::target are the targets, and all
/// others are inputs (float32): a number, or for a category as many numbers as there
/// are categories, 1 for the category and 0 for the others. DataOptions::shape gives
/// the inputs of a sample another shape.
///
/// A single target column of categories, or of whole numbers from 0 on, has classes.
/// DataRequest::whole_targets can make values of whole numbers. If it is automatic,
/// more than 20 different numbers, of which at least half of those up to the largest do
/// not occur, are values. Other targets are values. A folder has the files of
/// part_files.h. Sets Dataset::columns.
///
/// Throws ConfigError if a target column is not set or is not in the table, or if
/// targets that must be values are categories. Throws the errors of read_csv().
[[nodiscard]] DatasetSplits load_table(
    const DataRequest& request, const Deadline& deadline);

/// Loads the inputs of a table, with DataRequest::columns. The file may lack the target
/// column, if there is only one; the targets then have no bytes.
[[nodiscard]] Dataset load_table_inputs(const DataRequest& request);

}  // namespace tandem

#pragma once

#include <string>

#include "tandem/base/deadline.h"
#include "tandem/data/load_dataset.h"

namespace tandem {

/// Returns whether a path is a .csv file or a folder with train.csv.
[[nodiscard]] bool has_table(const std::string& path);

/// Loads a table (csv.h). The columns in DataOptions::target are the targets, and all
/// other columns in DataOptions::columns are inputs (float32). A numeric column is one
/// input. A column of categories is one input for each category: 1 for the sample's
/// category, 0 for the others. DataOptions::shape gives the inputs of a sample another
/// shape.
///
/// A single target column of categories, or of whole numbers from 0 on, contains
/// classes. Other targets are values. DataRequest::whole_targets can make whole numbers
/// values; if it is automatic, whole numbers are values if there are more than 20
/// different ones and at least half of the numbers up to the largest are missing. A
/// folder has the files of part_files.h. Sets Dataset::columns.
///
/// Throws ConfigError if a target column is not set or is not in the table, or if
/// targets that must be values are categories. Throws the errors of read_csv().
[[nodiscard]] DatasetSplits load_table(
    const DataRequest& request, const Deadline& deadline);

/// Loads the inputs of a table whose columns are DataRequest::columns. If there is only
/// one target column, the file may lack it; the targets then have no bytes.
[[nodiscard]] Dataset load_table_inputs(const DataRequest& request);

}  // namespace tandem

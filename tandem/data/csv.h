#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// Column of a CSV table. Its cells are numbers, or texts that are categories.
struct CsvColumn {
  std::string name;
  /// Sorted texts of a category column; empty for a numeric column.
  std::vector<std::string> categories;
};

/// Returns the names of columns.
std::vector<std::string> names_of(const std::vector<CsvColumn>& columns);

/// Content of a CSV file.
struct CsvTable {
  std::vector<CsvColumn> columns;
  int64_t num_rows = 0;
  /// num_rows x columns.size() values, row by row. A text is the index of its category.
  std::vector<float> values;
};

/// Columns to read from the CSV file of a training part.
struct CsvChoice {
  /// Names of the columns to use. If a name begins with "-", the list has the columns
  /// to leave out instead, optionally after "all". Empty: all columns.
  std::vector<std::string> columns;
  /// Names of columns that are used in any case.
  std::vector<std::string> always;
  /// Names of columns whose cells are texts, even if all are numbers.
  std::vector<std::string> categories;
};

/// Reads the CSV file of a training part, and determines its columns. Categories are
/// sorted by their bytes, so they do not depend on the order of the rows.
///
/// Format: RFC 4180 (csv_text.h) with commas as separators. The first line has the
/// names of at most 2^17 columns, unique, not empty and not all numbers. Each row has a
/// cell in each column. No cell is empty, NaN or infinite, and a number is in the range
/// of float32.
///
/// A cell is a number if its whole text is a number, such as "-1.5e3"; spaces around a
/// number are allowed. If all cells of a column are numbers, the column is numeric. If
/// at least 90 % of the cells are numbers, a text in the column is an error. Otherwise
/// all cells of the column are texts. If all texts are numbers with a decimal comma or
/// thousands separators, they are an error. A column has at most 2^24 categories,
/// because float32 represents larger indices inexactly.
///
/// Throws DataError with the path, the line and the column. Throws ConfigError if
/// `choice` has a name that is not in the file, or if the
/// file, or its values, are more than half of the free memory. Until every cell is
/// checked, the function uses at most 4 times the file's size plus 64 MB of memory.
/// Category tables can then need more memory.
CsvTable read_csv(const std::string& path, const CsvChoice& choice = {});

/// Reads the CSV file of a test part, or of samples to predict. The file must have the
/// columns of the training part, in any order; the table has them in the order of
/// `columns`. If the file does not have the column `may_lack`, neither does the table.
/// Other columns of the file are ignored if `ignores_others` is true.
///
/// Also throws DataError if the file lacks another column or has an extra column, and
/// for an unknown category or a text in a numeric column.
CsvTable read_csv(
    const std::string& path, const std::vector<CsvColumn>& columns,
    const std::string& may_lack = "", bool ignores_others = false);

/// Functions that parse the bytes of a file as read_csv() does. `path` is the name of
/// the file in errors.
CsvTable parse_csv(
    std::string_view text, const std::string& path, const CsvChoice& choice = {});
CsvTable parse_csv(
    std::string_view text, const std::string& path,
    const std::vector<CsvColumn>& columns, const std::string& may_lack = "",
    bool ignores_others = false);

/// Writes a table atomically (files.h). A number is written as the shortest text that
/// is parsed as the same float32. Throws DataError if a value is not finite, or if
/// writing fails.
void write_csv(const std::string& path, const CsvTable& table);

/// Returns columns as text for a checkpoint: a CSV line per column, with its name and
/// its categories.
std::string to_text(const std::vector<CsvColumn>& columns);

/// Returns the columns in a text of to_text(). `path` is the name of the text in
/// errors. Throws DataError if the text is damaged.
std::vector<CsvColumn> columns_from_text(
    std::string_view text, const std::string& path);

}  // namespace tandem

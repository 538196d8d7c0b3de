#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// Splits a CSV text into rows of cells (RFC 4180).
///
/// A cell can be in double quotes; it then contains commas, line breaks and doubled
/// quotes. A line ends with LF or CRLF. A UTF-8 byte order mark at the start and empty
/// lines at the end are skipped.
///
/// The constructor and next() throw DataError, with the path and the line, if the text
/// is not valid CSV. Examples are a NUL byte, a byte that is not UTF-8, an empty line
/// before the end, a quote that is not closed, and text after a closing quote. A cell
/// without quotes must not contain quotes or carriage returns.
class CsvRows {
 public:
  /// Keeps a reference to `text`, which must outlive this object. `path` is the name of
  /// the text in errors. A row keeps its first `most_cells` cells.
  CsvRows(std::string_view text, std::string path, size_t most_cells);

  /// Reads the next row. Returns false at the end of the text.
  bool next();

  /// Returns the cells of the row, without quotes. They are valid until the next call
  /// of next().
  const std::vector<std::string_view>& cells() const {
    return cells_;
  }
  /// Returns the number of cells of the row, including cells that are not kept.
  size_t num_cells() const {
    return num_cells_;
  }
  /// Returns the line at which the row begins, counted from 1.
  int64_t line() const {
    return row_line_;
  }

  /// Throws DataError "[data] line LINE of 'PATH' WHAT" for the row.
  [[noreturn]] void fail(const std::string& what) const;
  /// Throws DataError "[data] column 'COLUMN' in line LINE of 'PATH' WHAT".
  [[noreturn]] void fail_in(std::string_view column, const std::string& what) const;

 private:
  bool read_cell();
  void read_plain();
  void read_quoted();
  void add(std::string_view cell);

  const std::string path_;
  const size_t most_cells_;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  bool ended_ = false;
  int64_t line_ = 1;

  int64_t row_line_ = 1;
  size_t num_cells_ = 0;
  std::vector<std::string_view> cells_;
  // Cells with doubled quotes, which are not parts of the text.
  std::deque<std::string> unescaped_;
};

/// Returns a text in double quotes, with each quote in the text doubled (RFC 4180).
std::string quoted_cell(std::string_view text);

/// Returns the cell of a CSV file for a text: the text itself, or the text in double
/// quotes if it would be ambiguous without quotes.
std::string csv_cell(std::string_view text);

/// Returns whether a cell contains only spaces and tabs.
bool is_blank(std::string_view cell);

/// Returns the number in a cell, which may have spaces and tabs around it, rounded to
/// float32. A number that is too large for float32 becomes infinity; a number that is
/// too small becomes 0 or a denormal number. Returns nullopt for text. The locale has
/// no effect.
std::optional<float> csv_number(std::string_view cell);

/// Returns whether a cell is a number with a decimal comma or thousands separators,
/// such as "3,5", "1,200.50", "1.200,5", "1 200" or "1'200". csv_number() returns
/// nullopt for these.
bool has_number_separators(std::string_view cell);

/// Returns a text in single quotes for an error. Keeps at most the first 40 bytes of
/// the text.
std::string csv_excerpt(std::string_view text);

}  // namespace tandem

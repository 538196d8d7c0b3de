#include "tandem/data/csv.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/data/csv_text.h"
#include "tandem/data/data_memory.h"

namespace tandem {

namespace {

constexpr size_t kMostColumns = size_t{1} << 17;
constexpr size_t kMostCategories = size_t{1} << 24;

// Throws DataError if the first line has semicolons or tabs outside of quotes, but no
// comma.
void check_separator(std::string_view text, const std::string& path) {
  char other = 0;
  bool quoted = false;
  for (const char byte : text) {
    quoted = quoted != (byte == '"');
    if (!quoted && byte == ',') {
      return;
    }
    if (!quoted && byte == '\n') {
      break;
    }
    if (!quoted && (byte == ';' || byte == '\t')) {
      other = byte;
    }
  }
  if (other != 0) {
    throw DataError(fmt::format(
        "[data] '{}' separates its columns with {}, expected commas; save the file "
        "with commas",
        path, other == ';' ? "semicolons" : "tabs"));
  }
}

// Returns the names in the first row.
std::vector<std::string> read_header(CsvRows& rows, const std::string& path) {
  if (!rows.next()) {
    throw DataError(fmt::format(
        "[data] '{}' is empty, expected a line of column names; name another file",
        path));
  }
  const auto& cells = rows.cells();
  if (rows.num_cells() > kMostColumns) {
    rows.fail(fmt::format(
        "has {} columns, expected at most {}; split the file", rows.num_cells(),
        kMostColumns));
  }
  if (std::all_of(cells.begin(), cells.end(), &csv_number)) {
    rows.fail("has only numbers, expected column names; add a header");
  }
  std::unordered_set<std::string_view> seen;
  for (const auto& name : cells) {
    if (is_blank(name)) {
      rows.fail(fmt::format(
          "has an empty name for column {} of {}; name the column", seen.size() + 1,
          cells.size()));
    }
    if (!seen.insert(name).second) {
      rows.fail(fmt::format(
          "has the column name {} twice, expected different names; rename a column",
          csv_excerpt(name)));
    }
  }
  return {cells.begin(), cells.end()};
}

// Calls `act` for each row after the header. Returns the number of rows.
template <typename Act>
int64_t for_each_row(
    CsvRows& rows, const std::string& path, size_t num_columns, Act act) {
  int64_t num_rows = 0;
  for (; rows.next(); ++num_rows) {
    if (rows.num_cells() != num_columns) {
      rows.fail(fmt::format(
          "has {} cells, expected {} as in the header; correct the line",
          rows.num_cells(), num_columns));
    }
    act();
  }
  if (num_rows == 0) {
    throw DataError(fmt::format(
        "[data] '{}' has no rows after its header, expected 1 or more; add rows",
        path));
  }
  return num_rows;
}

// Returns an empty vector that can hold the values of a table without another
// allocation.
std::vector<float> room_for_values(
    std::string_view text, const std::string& path, size_t num_columns) {
  const auto num_lines =
      1 + static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  // A cell is not empty, and a comma or a line end follows it.
  const size_t most = std::min(num_lines * num_columns, text.size() / 2 + 1);
  check_data_memory("'" + path + "'", most * sizeof(float));
  std::vector<float> values;
  values.reserve(most);
  return values;
}

void check_not_blank(
    const CsvRows& rows, const std::string& column, std::string_view cell) {
  if (is_blank(cell)) {
    rows.fail_in(column, "is empty, expected a value; fill the cell or remove the row");
  }
}

// Returns the number in a cell, nullopt for text.
std::optional<float> number_in(
    const CsvRows& rows, const std::string& column, std::string_view cell) {
  const auto number = csv_number(cell);
  if (!number) {
    check_not_blank(rows, column, cell);
  } else if (!std::isfinite(*number)) {
    rows.fail_in(
        column, fmt::format(
                    "is {}, expected a finite number in the range of float32; correct "
                    "the cell or remove the row",
                    csv_excerpt(cell)));
  }
  return number;
}

// Cells of a column that are not numbers.
struct Texts {
  int64_t count = 0;
  // Number of texts that are numbers with separators.
  int64_t num_separated = 0;
  int64_t first_line = 0;
  // Excerpt of the first text.
  std::string first;
};

constexpr const char* kSeparatorAdvice =
    "a number with a decimal comma or thousands separators, expected a decimal point "
    "and no separators; write 1200.5, or set --categories";

// Returns the number in a cell of a training part, 0 for a text, which it notes in
// `texts`. `is_text`: whether numbers are texts too.
float read_cell(
    const CsvRows& rows, const std::string& column, size_t position, bool is_text,
    Texts& texts) {
  const std::string_view cell = rows.cells()[position];
  std::optional<float> number;
  if (is_text) {
    check_not_blank(rows, column, cell);
  } else {
    number = number_in(rows, column, cell);
  }
  if (!number) {
    if (texts.count++ == 0) {
      texts.first_line = rows.line();
      texts.first = csv_excerpt(cell);
    }
    texts.num_separated += !is_text && has_number_separators(cell) ? 1 : 0;
  }
  return number.value_or(0);
}

// Returns whether a column has categories. Throws DataError if it is a numeric column
// with a few texts.
bool has_categories(
    const Texts& texts, int64_t num_rows, const std::string& column,
    const std::string& path) {
  if (texts.count > 0 && texts.count == texts.num_separated) {
    throw DataError(fmt::format(
        "[data] column {} in line {} of '{}' is {}, {}", csv_excerpt(column),
        texts.first_line, path, texts.first, kSeparatorAdvice));
  }
  const int64_t num_numbers = num_rows - texts.count;
  if (texts.count > 0 && num_numbers >= num_rows - num_rows / 10) {
    throw DataError(fmt::format(
        "[data] column {} in line {} of '{}' is text in a numeric column ({}; {} of {} "
        "cells are numbers), expected a number; correct the cell or remove the row",
        csv_excerpt(column), texts.first_line, path, texts.first, num_numbers,
        num_rows));
  }
  return texts.count > 0;
}

using CategoryIndex = std::unordered_map<std::string, uint32_t>;

// Sorts the categories of column `c`, whose values are indices in the order of the
// rows. Empties `index`.
void sort_categories(CsvTable& table, size_t c, CategoryIndex& index) {
  std::vector<std::pair<std::string, uint32_t>> entries(index.begin(), index.end());
  index.clear();
  std::sort(entries.begin(), entries.end());
  auto& categories = table.columns[c].categories;
  categories.reserve(entries.size());
  std::vector<float> sorted(entries.size());
  for (auto& [text, at] : entries) {
    sorted[at] = static_cast<float>(categories.size());
    categories.push_back(std::move(text));
  }
  for (size_t at = c; at < table.values.size(); at += table.columns.size()) {
    table.values[at] = sorted[static_cast<size_t>(table.values[at])];
  }
}

// Fills in the columns `chosen` of a table, which have categories. `positions` are the
// positions of the table's columns in the file.
void read_categories(
    std::string_view text, const std::string& path, const std::vector<size_t>& chosen,
    const std::vector<size_t>& positions, CsvTable& table) {
  CsvRows rows(text, path, kMostColumns);
  rows.next();
  std::vector<CategoryIndex> indices(chosen.size());
  std::string key;
  for (float* values = table.values.data(); rows.next();
       values += table.columns.size()) {
    for (size_t i = 0; i < chosen.size(); ++i) {
      const size_t c = chosen[i];
      auto& index = indices[i];
      key.assign(rows.cells()[positions[c]]);
      const auto next = static_cast<uint32_t>(index.size());
      values[c] = static_cast<float>(index.try_emplace(key, next).first->second);
      if (index.size() > kMostCategories) {
        rows.fail_in(
            table.columns[c].name,
            fmt::format(
                "is category {}, expected at most {}; remove the column", index.size(),
                kMostCategories));
      }
    }
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    sort_categories(table, chosen[i], indices[i]);
  }
}

// Returns the first few texts, such as "'a', 'b', 'c' and 4 more".
std::string first_of(const std::vector<std::string>& texts) {
  constexpr size_t kShown = 5;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(texts.size(), kShown); ++i) {
    shown.push_back(csv_excerpt(texts[i]));
  }
  const size_t num_more = texts.size() - shown.size();
  return join(shown) + (num_more > 0 ? fmt::format(" and {} more", num_more) : "");
}

[[noreturn]] void fail_unknown(
    const std::string& setting, const std::string& name, const std::string& path,
    const std::vector<std::string>& names) {
  throw ConfigError(fmt::format(
      "[data] {} names the column {}, expected a column of '{}': {}{}; change --{}",
      setting, csv_excerpt(name), path, first_of(names), did_you_mean(name, names),
      setting));
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the positions of the columns in the file that `choice` selects.
std::vector<size_t> chosen_positions(
    const CsvChoice& choice, const std::vector<std::string>& names,
    const std::string& path) {
  // A column can have a name that begins with a hyphen.
  const auto is_left_out = [&](const std::string& name) {
    return name.size() > 1 && name[0] == '-' && !contains(names, name);
  };
  const auto& listed = choice.columns;
  const bool drops = std::any_of(listed.begin(), listed.end(), is_left_out);
  std::vector<std::string> found;
  for (size_t i = 0; i < listed.size(); ++i) {
    if (drops && i == 0 && listed[i] == "all") {
      continue;
    }
    if (drops != is_left_out(listed[i])) {
      throw ConfigError(
          "[data] columns has names with and without a hyphen, expected columns to "
          "use, or all,-NAME to leave columns out; change --columns");
    }
    const std::string name = drops ? listed[i].substr(1) : listed[i];
    if (!contains(names, name)) {
      fail_unknown("columns", name, path, names);
    }
    found.push_back(name);
  }
  std::vector<size_t> positions;
  for (size_t c = 0; c < names.size(); ++c) {
    if (listed.empty() || contains(found, names[c]) != drops ||
        contains(choice.always, names[c])) {
      positions.push_back(c);
    }
  }
  return positions;
}

// Reads the cells of a column that is known from the training part.
class ColumnReader {
 public:
  // Keeps a reference to `column`. `position` is the position of the column in the
  // file.
  ColumnReader(const CsvColumn& column, size_t position)
      : column_(column), position_(position) {
    for (size_t i = 0; i < column.categories.size(); ++i) {
      index_.emplace(column.categories[i], i);
    }
  }

  float value_in(const CsvRows& rows) const {
    const std::string_view cell = rows.cells()[position_];
    if (column_.categories.empty()) {
      const auto number = number_in(rows, column_.name, cell);
      if (!number && has_number_separators(cell)) {
        rows.fail_in(
            column_.name,
            fmt::format("is {}, {}", csv_excerpt(cell), kSeparatorAdvice));
      }
      if (!number) {
        rows.fail_in(
            column_.name, fmt::format(
                              "is text in a numeric column ({}), expected a number; "
                              "correct the cell or remove the row",
                              csv_excerpt(cell)));
      }
      return *number;
    }
    const auto found = index_.find(cell);
    if (found == index_.end()) {
      check_not_blank(rows, column_.name, cell);
      rows.fail_in(
          column_.name,
          fmt::format(
              "is {}, expected a category of the training part ({}); correct the cell "
              "or remove the row",
              csv_excerpt(cell), first_of(column_.categories)));
    }
    return static_cast<float>(found->second);
  }

 private:
  const CsvColumn& column_;
  const size_t position_;
  std::unordered_map<std::string_view, size_t> index_;
};

// Returns the columns that a file with these names has.
std::vector<CsvColumn> columns_in_file(
    const std::vector<std::string>& names, const std::string& path,
    const std::vector<CsvColumn>& columns, const std::string& may_lack,
    bool ignores_others) {
  const std::unordered_set<std::string> in_file(names.begin(), names.end());
  std::vector<CsvColumn> found;
  std::unordered_set<std::string> expected;
  for (const auto& column : columns) {
    expected.insert(column.name);
    if (in_file.count(column.name) > 0) {
      found.push_back(column);
    } else if (column.name != may_lack) {
      throw DataError(fmt::format(
          "[data] '{}' has no column {}{}; add the column or correct its name in the "
          "header",
          path, csv_excerpt(column.name), did_you_mean(column.name, names)));
    }
  }
  for (const auto& name : names) {
    if (!ignores_others && expected.count(name) == 0) {
      throw DataError(fmt::format(
          "[data] '{}' has an extra column {}, expected only the columns of the "
          "training part ({}); remove the column",
          path, csv_excerpt(name), first_of(names_of(columns))));
    }
  }
  return found;
}

// Returns the bytes of a file, which must fit in memory.
std::string read_text(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (!error) {
    check_data_memory("'" + path + "'", size);
  }
  return read_file(path);
}

}  // namespace

std::vector<std::string> names_of(const std::vector<CsvColumn>& columns) {
  std::vector<std::string> names;
  names.reserve(columns.size());
  for (const auto& column : columns) {
    names.push_back(column.name);
  }
  return names;
}

CsvTable parse_csv(
    std::string_view text, const std::string& path, const CsvChoice& choice) {
  check_separator(text, path);
  CsvRows rows(text, path, kMostColumns);
  const auto names = read_header(rows, path);
  for (const auto& name : choice.categories) {
    if (!contains(names, name)) {
      fail_unknown("categories", name, path, names);
    }
  }
  const auto positions = chosen_positions(choice, names, path);
  CsvTable table;
  std::vector<bool> is_text;
  for (const size_t position : positions) {
    table.columns.push_back({names[position], {}});
    is_text.push_back(contains(choice.categories, names[position]));
  }
  table.values = room_for_values(text, path, positions.size());
  std::vector<Texts> texts(positions.size());
  table.num_rows = for_each_row(rows, path, names.size(), [&] {
    for (size_t c = 0; c < positions.size(); ++c) {
      table.values.push_back(
          read_cell(rows, table.columns[c].name, positions[c], is_text[c], texts[c]));
    }
  });
  std::vector<size_t> chosen;
  for (size_t c = 0; c < positions.size(); ++c) {
    if (has_categories(texts[c], table.num_rows, table.columns[c].name, path)) {
      chosen.push_back(c);
    }
  }
  if (!chosen.empty()) {
    read_categories(text, path, chosen, positions, table);
  }
  return table;
}

CsvTable parse_csv(
    std::string_view text, const std::string& path,
    const std::vector<CsvColumn>& columns, const std::string& may_lack,
    bool ignores_others) {
  check_separator(text, path);
  CsvRows rows(text, path, kMostColumns);
  const auto names = read_header(rows, path);
  CsvTable table;
  table.columns = columns_in_file(names, path, columns, may_lack, ignores_others);
  std::unordered_map<std::string_view, size_t> positions;
  for (size_t i = 0; i < names.size(); ++i) {
    positions.emplace(names[i], i);
  }
  std::vector<ColumnReader> readers;
  for (const auto& column : table.columns) {
    readers.emplace_back(column, positions.at(column.name));
  }
  table.values = room_for_values(text, path, names.size());
  table.num_rows = for_each_row(rows, path, names.size(), [&] {
    for (const auto& reader : readers) {
      table.values.push_back(reader.value_in(rows));
    }
  });
  return table;
}

CsvTable read_csv(const std::string& path, const CsvChoice& choice) {
  return parse_csv(read_text(path), path, choice);
}

CsvTable read_csv(
    const std::string& path, const std::vector<CsvColumn>& columns,
    const std::string& may_lack, bool ignores_others) {
  return parse_csv(read_text(path), path, columns, may_lack, ignores_others);
}

}  // namespace tandem

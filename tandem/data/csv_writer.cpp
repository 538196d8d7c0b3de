#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <unordered_set>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/data/csv.h"
#include "tandem/data/csv_text.h"

namespace tandem {

namespace {

// Throws DataError if a value is not finite.
void check_finite(const std::string& path, const CsvTable& table) {
  for (size_t i = 0; i < table.values.size(); ++i) {
    if (!std::isfinite(table.values[i])) {
      const size_t num_columns = table.columns.size();
      throw DataError(fmt::format(
          "[data] '{}' would have {} in row {}, column {}, expected finite numbers; "
          "change the data",
          path, table.values[i], i / num_columns + 1,
          csv_excerpt(table.columns[i % num_columns].name)));
    }
  }
}

std::string cell_of(const CsvColumn& column, float value) {
  const auto& categories = column.categories;
  if (!categories.empty()) {
    TANDEM_CHECK(
        value >= 0 && value < static_cast<float>(categories.size()),
        "a value is not a category");
    return csv_cell(categories[static_cast<size_t>(value)]);
  }
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

}  // namespace

void write_csv(const std::string& path, const CsvTable& table) {
  constexpr size_t kChunkBytes = size_t{1} << 20;
  const size_t num_columns = table.columns.size();
  TANDEM_CHECK(
      table.values.size() == static_cast<size_t>(table.num_rows) * num_columns,
      "a table has another number of values");
  check_finite(path, table);
  replace_file(path, [&](int fd) {
    std::string text;
    const auto add = [&](size_t c, const std::string& cell) {
      text += cell;
      text += c + 1 < num_columns ? ',' : '\n';
    };
    for (size_t c = 0; c < num_columns; ++c) {
      add(c, csv_cell(table.columns[c].name));
    }
    for (size_t i = 0; i < table.values.size(); ++i) {
      const size_t c = i % num_columns;
      add(c, cell_of(table.columns[c], table.values[i]));
      if (text.size() >= kChunkBytes) {
        write_all(fd, text.data(), text.size(), path);
        text.clear();
      }
    }
    write_all(fd, text.data(), text.size(), path);
  });
}

std::string to_text(const std::vector<CsvColumn>& columns) {
  std::string text;
  for (const auto& column : columns) {
    text += csv_cell(column.name);
    for (const auto& category : column.categories) {
      text += ',';
      text += csv_cell(category);
    }
    text += '\n';
  }
  return text;
}

std::vector<CsvColumn> columns_from_text(
    std::string_view text, const std::string& path) {
  CsvRows rows(text, path, text.size() + 1);
  std::vector<CsvColumn> columns;
  std::unordered_set<std::string> names;
  while (rows.next()) {
    const auto& cells = rows.cells();
    const bool sorted =
        std::adjacent_find(cells.begin() + 1, cells.end(), std::greater_equal<>()) ==
        cells.end();
    if (std::any_of(cells.begin(), cells.end(), &is_blank) || !sorted ||
        !names.insert(std::string(cells[0])).second) {
      rows.fail("is not a column with sorted categories; use an undamaged checkpoint");
    }
    columns.push_back({std::string(cells[0]), {cells.begin() + 1, cells.end()}});
  }
  return columns;
}

}  // namespace tandem

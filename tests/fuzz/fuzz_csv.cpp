// CSV: a table that was accepted has the cells that a simple reader finds, and is equal
// when it is written and read again. So are its columns.

#include <cstdlib>

#include "tandem/base/files.h"
#include "tandem/data/csv.h"
#include "tests/fuzz/fuzz.h"

namespace {

using tandem::CsvTable;
using tandem::fuzz::expect;

// Returns the cells of a valid CSV text. The function follows RFC 4180 and does not use
// the library that the fuzzer tests.
std::vector<std::vector<std::string>> cells_of(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, {""});
  bool quoted = false;
  for (size_t i = text.compare(0, 3, "\xef\xbb\xbf") == 0 ? 3 : 0; i < text.size();
       ++i) {
    const bool ends_line = text[i] == '\n' || text.compare(i, 2, "\r\n") == 0;
    if (text[i] == '"' && quoted && text.compare(i, 2, "\"\"") == 0) {
      rows.back().back() += text[i++];
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text[i] == ',') {
      rows.back().emplace_back();
    } else if (!quoted && ends_line) {
      i += text[i] == '\r' ? 1 : 0;
      rows.push_back({""});
    } else {
      rows.back().back() += text[i];
    }
  }
  while (!rows.empty() && rows.back() == std::vector<std::string>{""}) {
    rows.pop_back();
  }
  return rows;
}

void expect_cells(const CsvTable& table, const std::string& text) {
  const auto rows = cells_of(text);
  const size_t num_columns = table.columns.size();
  expect(rows.size() == static_cast<size_t>(table.num_rows) + 1, "every row is there");
  expect(
      table.values.size() == (rows.size() - 1) * num_columns, "every value is there");
  for (const auto& row : rows) {
    expect(row.size() == num_columns, "every row has a cell in each column");
  }
  for (size_t c = 0; c < num_columns; ++c) {
    const auto& [name, categories] = table.columns[c];
    expect(rows[0][c] == name, "a name is a cell of the first row");
    for (size_t r = 1; r < rows.size(); ++r) {
      const std::string& cell = rows[r][c];
      const float value = table.values[(r - 1) * num_columns + c];
      if (categories.empty()) {
        expect(std::strtof(cell.c_str(), nullptr) == value, "a number is its cell");
      } else {
        expect(
            categories.at(static_cast<size_t>(value)) == cell,
            "a category is its cell");
      }
    }
  }
}

void expect_same(const CsvTable& a, const CsvTable& b) {
  expect(to_text(a.columns) == to_text(b.columns), "columns come back");
  expect(a.num_rows == b.num_rows, "the number of rows comes back");
  expect(a.values == b.values, "values come back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  // In memory, so that flushing it costs nothing.
  static const std::string path = "/dev/shm/fuzz-" + std::to_string(getpid());
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  CsvTable table;
  if (fuzz::accepts([&] { table = parse_csv(bytes, "input"); })) {
    expect_cells(table, bytes);
    write_csv(path, table);
    const std::string written = read_file(path);
    unlink(path.c_str());
    expect_same(table, parse_csv(written, path));
    expect_same(table, parse_csv(written, path, table.columns));
    const std::string text = to_text(table.columns);
    expect(to_text(columns_from_text(text, "text")) == text, "columns come back");
  }
  std::vector<CsvColumn> columns;
  if (fuzz::accepts([&] { columns = columns_from_text(bytes, "input"); })) {
    const std::string text = to_text(columns);
    expect(to_text(columns_from_text(text, "text")) == text, "columns come back");
    fuzz::accepts([&] { parse_csv(text, "input", columns, "x"); });
  }
  return 0;
}

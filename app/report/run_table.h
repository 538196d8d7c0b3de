#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tandem::app {

/// Texts of a table: the titles of the columns, and one row of cells for each run.
struct RunTable {
  std::vector<std::string> titles;
  std::vector<std::vector<std::string>> rows;
  // Reasons why runs were skipped or failed, one sentence per run.
  std::vector<std::string> notes;
};

/// Builds the table of a comparison, a scaling or a run. `table` contains the additions
/// of add_conclusions(). If `wide` is true, includes the columns that do not fit on a
/// terminal.
RunTable make_run_table(const nlohmann::ordered_json& table, bool wide);

/// Functions that return the table and the notes as plain text (to_text()) or as
/// Markdown (to_markdown()). The first column is aligned to the left, and the others to
/// the right.
std::string to_text(const RunTable& table);
std::string to_markdown(const RunTable& table);

}  // namespace tandem::app

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tandem::app {

/// Texts of a table: titles and, per run, a row of cells.
struct RunTable {
  std::vector<std::string> titles;
  std::vector<std::vector<std::string>> rows;
  // Reasons why runs were skipped or failed, one sentence per run.
  std::vector<std::string> notes;
};

/// Builds the table of a comparison, a scaling or a run. `table` contains the additions
/// of add_conclusions(). `wide`: includes the columns for which a terminal has no room.
RunTable make_run_table(const nlohmann::ordered_json& table, bool wide);

/// Returns the table with the first column aligned to the left and the others to the
/// right.
std::string to_text(const RunTable& table);
std::string to_markdown(const RunTable& table);

}  // namespace tandem::app

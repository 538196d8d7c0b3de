#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tandem::app {

/// A table's texts: titles, and a row of cells per run.
struct RunTable {
  std::vector<std::string> titles;
  std::vector<std::vector<std::string>> rows;
  // Why a run was skipped or failed, one sentence each.
  std::vector<std::string> notes;
};

/// The table of what `compare` or `scaling` wrote (table.json, scaling.json), or of
/// one run, as conclude() left it. `wide`: with the columns for which a terminal has no
/// room.
RunTable make_run_table(const nlohmann::ordered_json& table, bool wide);

/// Aligned columns; the first to the left, the others to the right.
std::string to_text(const RunTable& table);
std::string to_markdown(const RunTable& table);

}  // namespace tandem::app

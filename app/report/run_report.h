#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/report/conclusions.h"

namespace tandem::app {

/// Files of `compare` and `scaling` in the directory of a comparison.
constexpr const char* kCompareTable = "table.json";
constexpr const char* kScalingTable = "scaling.json";

/// Reads the table of a comparison or a scaling, or makes a table with one row from a
/// run directory. Throws DataError if the directory has neither, or a broken one.
nlohmann::ordered_json read_run_table(const std::string& directory);

/// CPU and LibTorch from environment.json of a run; empty without the file.
nlohmann::ordered_json machine_of(const std::string& directory);

/// One HTML file that loads nothing: results, charts and settings. `table`: as
/// add_conclusions() left it.
std::string make_page(
    const nlohmann::ordered_json& table, const Conclusions& conclusions);

/// Writes DIRECTORY/report.html from the table and the files of the runs. Adds to the
/// table what add_conclusions() adds. Throws DataError.
Conclusions write_report(const std::string& directory, nlohmann::ordered_json& table);

}  // namespace tandem::app

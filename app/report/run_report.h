#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/report/conclusions.h"

namespace tandem::app {

/// Names of the tables that `compare` and `scaling` write into their directory.
constexpr const char* kCompareTable = "table.json";
constexpr const char* kScalingTable = "scaling.json";

/// Reads a file that contains a JSON object. Throws DataError for other files.
nlohmann::ordered_json read_json(const std::string& path);

/// Reads the table of a comparison or a scaling, or makes a table with one row from a
/// run directory. Throws DataError if the directory has neither, or if a file is
/// damaged.
nlohmann::ordered_json read_run_table(const std::string& directory);

/// Returns the CPU, the number of usable CPUs and LibTorch's version from a run's
/// environment.json; empty if there is no such file.
nlohmann::ordered_json machine_of(const std::string& directory);

/// Returns the report as a self-contained HTML page: results, charts and settings.
/// `table` contains the additions of add_conclusions().
std::string make_page(
    const nlohmann::ordered_json& table, const Conclusions& conclusions);

/// Writes DIRECTORY/report.html from the table and the files of the runs. Calls
/// add_conclusions(), which extends the table, and returns its result. Throws DataError
/// if a file cannot be read or written.
Conclusions write_report(const std::string& directory, nlohmann::ordered_json& table);

}  // namespace tandem::app

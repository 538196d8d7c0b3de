#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/report/conclusions.h"

namespace tandem::app {

/// Names, in the directory of a comparison, of what `compare` and `scaling` write.
constexpr const char* kCompareTable = "table.json";
constexpr const char* kScalingTable = "scaling.json";

/// What a directory holds: of a comparison, of a scaling, or the table of one row
/// of a run directory. Throws DataError when it holds none of them, or a broken one.
nlohmann::ordered_json read_run_table(const std::string& directory);

/// What environment.json of a run says of the machine, in short; empty without it.
nlohmann::ordered_json machine_of(const std::string& directory);

/// Writes DIRECTORY/report.html, one file with all it needs, and its first chart as
/// DIRECTORY/report.svg, from the table and the runs' metrics.jsonl. Adds to the table
/// what conclude() adds. Throws DataError.
Conclusions write_report(const std::string& directory, nlohmann::ordered_json& table);

}  // namespace tandem::app

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tandem::app {

/// Names, in the directory of a comparison, of what `compare` and `scaling` write.
constexpr const char* kCompareTable = "table.json";
constexpr const char* kScalingTable = "scaling.json";

/// What a directory holds: of a comparison, of a scaling, or the table of one row
/// of a run directory. Throws DataError when it holds none of them, or a broken one.
nlohmann::ordered_json read_run_table(const std::string& directory);

/// What environment.json of a run says of the machine, in short; empty without it.
nlohmann::ordered_json machine_of(const std::string& directory);

/// Writes DIRECTORY/report.html from the table and the runs' metrics.jsonl: one
/// file with all it needs, Chart.js too. report.html says what it looks like. Throws
/// DataError.
void write_report(const std::string& directory, const nlohmann::ordered_json& table);

}  // namespace tandem::app

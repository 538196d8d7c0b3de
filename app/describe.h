#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace tandem::app {

/// What manual pages and shells' completion are made from (packaging/pages): every
/// command prints what it takes for this flag, which no help lists.
constexpr const char* kDescribeFlag = "--describe";

/// A command's arguments as JSON: name, description and options, each with its names
/// (none: it has a place instead), help, group, default, whether a value follows, and
/// that value's kind (number, text or list) and choices, with their help.
std::string describe(const CLI::App& app);

/// A program's commands, or a command's actions, as JSON: rows of a table with name and
/// help.
template <typename Rows>
std::string describe(const std::string& name, const Rows& rows) {
  nlohmann::ordered_json json = {{"name", name}};
  for (const auto& row : rows) {
    json["commands"].push_back({{"name", row.name}, {"help", row.help}});
  }
  return json.dump(2) + "\n";
}

}  // namespace tandem::app

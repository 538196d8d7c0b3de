#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace tandem::app {

/// What manual pages and shells' completion are made from (packaging/pages): every
/// command prints what it takes for this flag, which no help lists.
constexpr const char* kDescribeFlag = "--describe";

/// A command's arguments as JSON: name, description and options. Each option has its
/// names (none: it is the argument `place`), help, group, default, choices with their
/// help, and the kind of its value: word (one of the choices), number (or one of them),
/// list (of them), data (one of them, or a folder), file, recipe or program; "" for a
/// switch.
std::string describe(const CLI::App& app);

/// A program's commands, or a command's actions, as JSON: rows of a table with name and
/// help.
template <typename Rows>
std::string describe(const std::string& name, const Rows& rows) {
  nlohmann::ordered_json json = {
      {"name", name},
      {"description", ""},
      {"options", nlohmann::ordered_json::array()}};
  for (const auto& row : rows) {
    json["commands"].push_back({{"name", row.name}, {"help", row.help}});
  }
  return json.dump(2) + "\n";
}

}  // namespace tandem::app

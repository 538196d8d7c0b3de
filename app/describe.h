#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace tandem::app {

/// Flag with which every command prints its description as JSON. From this JSON,
/// packaging/pages generates manual pages and shell completion. The help does not list
/// the flag.
constexpr const char* kDescribeFlag = "--describe";

/// Returns a description of a command as JSON: name, description and options. Each
/// option has names, help, group, default, choices with their help, and the kind of its
/// value. A positional argument has no names; `place` is its name. The kinds are word
/// (one of the choices), number (or a choice), list (of choices), data (a choice or a
/// folder), file, recipe, program, and "" for a switch.
std::string describe(const CLI::App& app);

/// Returns a list of the commands of a program, or of the actions of a command, as
/// JSON. Each of `rows` has the members `name` and `help`.
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

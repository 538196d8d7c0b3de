#include "app/actions.h"

#include <fmt/core.h>

#include <algorithm>

#include "app/describe.h"
#include "tandem/base/error.h"

namespace tandem::app {

namespace {

std::string list_actions(
    const std::string& command, const std::vector<Action>& actions) {
  std::vector<std::string> usages;
  size_t width = 0;
  for (const auto& action : actions) {
    const std::string more =
        *action.usage == '\0' ? "" : " " + std::string(action.usage);
    usages.push_back("tandem " + command + " " + action.name + more);
    width = std::max(width, usages.back().size());
  }
  std::string lines;
  for (size_t i = 0; i < actions.size(); ++i) {
    lines += fmt::format("{:<{}}   {}\n", usages[i], width, actions[i].help);
  }
  return lines + "\ntandem " + command + " ACTION --help lists its flags.\n";
}

}  // namespace

int choose_action(
    const std::string& command, const std::vector<Action>& actions,
    const Arguments& arguments) {
  const std::string name = arguments.empty() ? "--help" : arguments[0];
  std::vector<std::string> names;
  for (const auto& action : actions) {
    if (name == action.name) {
      return action.run({arguments.begin() + 1, arguments.end()});
    }
    names.emplace_back(action.name);
  }
  if (name == "--help" || name == "-h") {
    fmt::print("{}", list_actions(command, actions));
    return 0;
  }
  if (name == kDescribeFlag) {
    fmt::print("{}", describe("tandem " + command, actions));
    return 0;
  }
  throw ConfigError(
      "[command line] unknown " + command + " action '" + name + "'" +
      did_you_mean(name, names) + "; choose one of " + join(names) + " (tandem " +
      command + " --help)");
}

}  // namespace tandem::app

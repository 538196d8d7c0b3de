#pragma once

#include <CLI/CLI.hpp>

#include "app/command.h"
#include "tandem/base/error.h"

namespace tandem::app {

/// Thrown by parse() for --help: the text was printed, there is nothing to do.
struct HelpShown {};

/// Parses arguments with CLI11; its complaints become ConfigError, unknown flags
/// with the nearest known one.
inline void parse(CLI::App& app, const Arguments& arguments) {
  app.allow_extras();
  app.set_help_flag("-h,--help", "Show this help");
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    throw HelpShown{};
  } catch (const CLI::ParseError& error) {
    throw ConfigError("[command line] " + first_line(error));
  }
  std::vector<std::string> flags;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) {
      flags.push_back("--" + name);
    }
  }
  const auto extras = app.remaining();
  if (!extras.empty()) {
    const auto flag = extras.front().substr(0, extras.front().find('='));
    throw ConfigError(
        "[command line] unknown argument '" + flag + "'" + did_you_mean(flag, flags) +
        "; see " + app.get_name() + " --help");
  }
}

}  // namespace tandem::app

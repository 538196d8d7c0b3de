#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "app/command.h"
#include "app/command_line.h"
#include "tandem/base/log.h"

namespace tandem::app {

/// "  name   help" lines.
inline std::string list_commands(const std::vector<Command>& commands) {
  std::string lines;
  for (const auto& command : commands) {
    lines += fmt::format("  {:<8} {}\n", command.name, command.help);
  }
  return lines;
}

/// Throws DataError when what was printed did not arrive.
inline void check_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw DataError(
        "[app] cannot write the output: " + std::string(std::strerror(errno)) +
        "; send it elsewhere");
  }
}

/// Finds and runs the subcommand of argv. Prints one line for an error. Returns
/// the exit code: 0 done, 1 failed, 2 misused.
inline int run_command_line(
    int argc, char** argv, const std::vector<Command>& commands,
    const std::string& help) {
  const Arguments all(argv + 1, argv + argc);
  if (all.empty() || all[0] == "--help" || all[0] == "-h" || all[0] == "help") {
    fmt::print("{}", help);
    return 0;
  }
  try {
    std::vector<std::string> names;
    for (const auto& command : commands) {
      if (all[0] == command.name) {
        const int code = command.run({all.begin() + 1, all.end()});
        // What train prints is only progress; what the others print is their result.
        if (all[0] != "train") {
          check_output();
        }
        return code;
      }
      names.emplace_back(command.name);
    }
    throw ConfigError(
        "[command line] unknown command '" + all[0] + "'" +
        did_you_mean(all[0], names) + "; see tandem --help");
  } catch (const HelpShown&) {
    return 0;
  } catch (const std::exception& error) {
    log_error(first_line(error));
    return exit_code(error);
  }
}

}  // namespace tandem::app

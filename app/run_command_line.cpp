#include "app/run_command_line.h"

#include <fmt/core.h>

#include <csignal>
#include <cstdio>
#include <system_error>

#include "app/command_line.h"
#include "app/describe.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/output.h"
#include "tandem/launch/failure_file.h"

namespace tandem::app {

namespace {

int run_subcommand(Arguments all, const std::vector<Command>& commands) {
  if (all[0] == "--version") {
    all[0] = "version";
  }
  std::vector<std::string> names;
  for (const auto& command : commands) {
    if (all[0] != command.name) {
      names.emplace_back(command.name);
      continue;
    }
    try {
      const int code = command.run({all.begin() + 1, all.end()});
      // A failed write of progress by `train` is not an error. Other commands print
      // their result, so it is an error.
      if (all[0] != "train") {
        check_output();
      }
      return code;
    } catch (const HelpShown&) {
      check_output();
      return 0;
    }
  }
  throw ConfigError(
      "[command line] unknown command '" + all[0] + "'" + did_you_mean(all[0], names) +
      "; see tandem --help");
}

// Reports an error to the program that started this one, prints it, and returns the
// exit code.
int report_failure(const std::exception& error) {
  report_to_parent(error);
  log_error(first_line(error));
  return exit_code(error);
}

}  // namespace

std::string list_commands(const std::vector<Command>& commands) {
  std::string lines;
  for (const auto& command : commands) {
    lines += fmt::format("  {:<8} {}\n", command.name, command.help);
  }
  return lines;
}

int run_command_line(
    int argc, char** argv, const std::vector<Command>& commands,
    const std::string& help) {
  try {
    reserve_standard_streams();
    // A write beyond `ulimit -f` then fails with an error, as on a full disk, instead
    // of ending the process.
    std::signal(SIGXFSZ, SIG_IGN);
    const Arguments all(argv + 1, argv + argc);
    if (all.empty() || all[0] == "--help" || all[0] == "-h" || all[0] == "help") {
      fmt::print("{}", help);
      check_output();
      return 0;
    }
    if (all[0] == kDescribeFlag) {
      fmt::print("{}", describe("tandem", commands));
      check_output();
      return 0;
    }
    return run_subcommand(all, commands);
  } catch (const std::system_error& error) {
    // fmt::print() throws this error if standard output cannot be written.
    return std::ferror(stdout) != 0
               ? report_failure(cannot_write_output(error.code().value()))
               : report_failure(error);
  } catch (const std::exception& error) {
    return report_failure(error);
  }
}

int run_as_rank(const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    if (report_to_launcher(error)) {
      return exit_code(error);
    }
    throw;
  }
}

}  // namespace tandem::app

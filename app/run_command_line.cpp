#include "app/run_command_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>
#include <system_error>

#include "app/command_line.h"
#include "app/describe.h"
#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/base/lost_pages.h"
#include "tandem/base/output.h"
#include "tandem/base/rank_env.h"
#include "tandem/launch/failure_file.h"
#include "tandem/launch/host_ending.h"

namespace tandem::app {

namespace {

// Returns the command with this name, or null.
const Command* find_command(
    const std::vector<Command>& commands, const std::string& name) {
  const auto found = std::find_if(
      commands.begin(), commands.end(),
      [&](const Command& command) { return command.name == name; });
  return found == commands.end() ? nullptr : &*found;
}

std::vector<std::string> names_of(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const auto& command : commands) {
    names.emplace_back(command.name);
  }
  return names;
}

int run_subcommand(const Arguments& arguments, const std::vector<Command>& commands) {
  const std::string name = arguments[0] == "--version" ? "version" : arguments[0];
  const auto* command = find_command(commands, name);
  if (command == nullptr) {
    throw ConfigError(
        "[command line] unknown command '" + name + "'" +
        did_you_mean(name, names_of(commands)) + "; see tandem --help");
  }
  try {
    const int code = command->run({arguments.begin() + 1, arguments.end()});
    // A failed write of progress by `train` is not an error. Other commands print their
    // result, so it is an error.
    if (name != "train") {
      check_output();
    }
    return code;
  } catch (const HelpShown&) {
    check_output();
    return 0;
  }
}

std::string list_actions(
    const std::string& command, const std::vector<Command>& actions) {
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

// Returns a text such as "rank 2 on NAME" if a launcher started this process as a rank
// of several hosts.
std::optional<std::string> rank_and_host() {
  const auto env = read_rank_env();
  return env && !is_one_host(*env)
             ? std::optional(fmt::format("rank {} on {}", env->rank, host_name()))
             : std::nullopt;
}

// Reports an error to the program that started this one, prints it, and returns the
// exit code. A run that a signal stopped has saved its state, which is no error.
int report_failure(const std::exception& error) {
  report_to_parent(error);
  const int code = exit_code(error);
  const auto print = code == kExitStopped ? &log_info : &log_error;
  print(first_line(error));
  return code;
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
    on_lost_page([](const std::exception& error) {
      if (!report_to_launcher(error)) {
        report_failure(error);
      }
    });
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

int choose_action(
    const std::string& command, const std::vector<Command>& actions,
    const Arguments& arguments) {
  const std::string name = arguments.empty() ? "--help" : arguments[0];
  if (const auto* action = find_command(actions, name)) {
    return action->run({arguments.begin() + 1, arguments.end()});
  }
  if (name == "--help" || name == "-h") {
    fmt::print("{}", list_actions(command, actions));
    return 0;
  }
  if (name == kDescribeFlag) {
    fmt::print("{}", describe("tandem " + command, actions));
    return 0;
  }
  const auto names = names_of(actions);
  throw ConfigError(
      "[command line] unknown " + command + " action '" + name + "'" +
      did_you_mean(name, names) + "; choose one of " + join(names) + " (tandem " +
      command + " --help)");
}

int run_as_rank(const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    if (report_to_launcher(error)) {
      return exit_code(error);
    }
    const std::string message = first_line(error);
    if (const auto host = is_about_files(message) ? rank_and_host() : std::nullopt) {
      throw_for_exit_code(exit_code(error), *host + " failed: " + message);
    }
    throw;
  }
}

}  // namespace tandem::app

// Program for tests that need a separate process. The first argument chooses an action:
//
//   launch [--nproc N] [--nnodes N] [--min-nnodes N] [--node-rank N]
//          [--master-port N] [--master-addr A] [--token-file FILE] [--insecure]
//          [--grace SECONDS] [--timeout SECONDS] [--max-restarts N] [--terminal]
//          [--no-prefix] [--local-rank-at N] [--set NAME VALUE] [--fork-server]
//          [--identity TEXT] COMMAND...
//   start COMMAND...              starts a child process and waits for it
//   exec COMMAND...               becomes the command
//   name                          prints its name as in ps -o comm
//   fail config|comm|data TEXT    reports an error to the launcher and exits
//   throw TEXT                    throws an exception that nothing catches

#include <sys/prctl.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/rank_env.h"
#include "tandem/launch/failure_file.h"
#include "tandem/launch/fork_server.h"
#include "tandem/launch/launcher.h"

namespace tandem {
namespace {

using Words = std::vector<std::string>;

void compare_hosts(LaunchOptions& options, const std::string& own) {
  options.identity = [own] { return own; };
  options.check_identity = [own](const std::string& host_0) {
    if (own != host_0) {
      throw ConfigError("identity is " + own + ", expected " + host_0);
    }
    return true;
  };
}

int launch_with(const Words& words) {
  LaunchOptions options;
  size_t at = 0;
  const auto next = [&] { return words.at(at++); };
  const std::map<std::string, std::function<void()>> flags = {
      {"--nproc", [&] { options.nproc_per_node = std::stoi(next()); }},
      {"--nnodes", [&] { options.nnodes = std::stoi(next()); }},
      {"--min-nnodes", [&] { options.min_nnodes = std::stoi(next()); }},
      {"--node-rank", [&] { options.node_rank = std::stoi(next()); }},
      {"--master-port", [&] { options.master_port = std::stoi(next()); }},
      {"--master-addr", [&] { options.master_addr = next(); }},
      {"--token-file", [&] { options.token.file = next(); }},
      {"--max-restarts", [&] { options.max_restarts = std::stoi(next()); }},
      {"--out", [&] { options.out = next(); }},
      {"--insecure", [&] { options.token.insecure = true; }},
      {"--grace", [&] { options.grace_seconds = std::stod(next()); }},
      {"--timeout", [&] { options.timeout_seconds = std::stod(next()); }},
      {"--max-restarts", [&] { options.max_restarts = std::stoi(next()); }},
      {"--identity", [&] { compare_hosts(options, next()); }},
      {"--terminal", [&] { options.first_rank_owns_terminal = true; }},
      {"--fork-server", [&] { options.fork_server = true; }},
      {"--no-prefix", [&] { options.prefix_output = false; }},
      {"--local-rank-at", [&] { options.local_rank_at = std::stoul(next()); }},
      {"--set", [&] {
         const auto name = next();
         options.variables.emplace_back(name, next());
       }}};
  while (at < words.size() && words[at].rfind("--", 0) == 0) {
    flags.at(next())();
  }
  options.command.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  launch_ranks(options);
  return 0;
}

int fail_as(const std::string& kind, const std::string& text) {
  if (kind == "config") {
    report_to_launcher(ConfigError(text));
    return 2;
  }
  if (kind == "comm") {
    report_to_launcher(CommError("all_reduce", text));
  } else {
    report_to_launcher(DataError(text));
  }
  return 1;
}

int run(const std::string& verb, const Words& words) {
  if (verb == "launch") {
    return launch_with(words);
  }
  if (verb == "start") {
    Process process({words, {}, false});
    return process.wait().code;
  }
  if (verb == "exec") {
    exec_program(words, {{"ADDED", "by exec"}});
  }
  if (verb == "name") {
    char name[16];
    prctl(PR_GET_NAME, name);
    std::puts(name);
    return 0;
  }
  return fail_as(words.at(0), words.at(1));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::serve_as_fork_server();
  if (argc > 2 && std::string(argv[1]) == "throw") {
    throw std::runtime_error(argv[2]);
  }
  try {
    return tandem::run(argv[1], {argv + 2, argv + argc});
  } catch (const std::exception& error) {
    tandem::log_error(tandem::first_line(error));
    return tandem::exit_code(error);
  }
}

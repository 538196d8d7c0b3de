// What the tests of launching need to run in a process of its own.
//
//   launch [--nproc N] [--nnodes N] [--node-rank N] [--master-port N]
//          [--master-addr A] [--token-file FILE] [--insecure]
//          [--grace SECONDS] [--terminal] [--no-prefix] [--local-rank-at N]
//          [--set NAME VALUE] [--fork-server] COMMAND...
//   start COMMAND...              a child, and waits for it
//   exec COMMAND...               becomes the command
//   name                          prints what ps -o comm says of it
//   set KEY VALUE                 as a rank: in the launcher's store
//   fail config|comm|data TEXT    as a rank: leaves a report and exits

#include <sys/prctl.h>

#include <cstdio>
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"
#include "tandem/launch/fork_server.h"
#include "tandem/launch/launcher.h"
#include "tandem/launch/report.h"

namespace tandem {
namespace {

using Words = std::vector<std::string>;

int launch_with(const Words& words) {
  LaunchOptions options;
  size_t at = 0;
  const auto next = [&] { return words.at(at++); };
  while (at < words.size() && words[at].rfind("--", 0) == 0) {
    const auto flag = next();
    if (flag == "--nproc") {
      options.nproc_per_node = std::stoi(next());
    } else if (flag == "--nnodes") {
      options.nnodes = std::stoi(next());
    } else if (flag == "--node-rank") {
      options.node_rank = std::stoi(next());
    } else if (flag == "--master-port") {
      options.master_port = std::stoi(next());
    } else if (flag == "--master-addr") {
      options.master_addr = next();
    } else if (flag == "--token-file") {
      options.token.file = next();
    } else if (flag == "--insecure") {
      options.token.insecure = true;
    } else if (flag == "--grace") {
      options.grace_seconds = std::stod(next());
    } else if (flag == "--terminal") {
      options.first_rank_owns_terminal = true;
    } else if (flag == "--fork-server") {
      options.fork_server = true;
    } else if (flag == "--no-prefix") {
      options.prefix_output = false;
    } else if (flag == "--local-rank-at") {
      options.local_rank_at = std::stoul(next());
    } else if (flag == "--set") {
      const auto name = next();
      options.variables.emplace_back(name, next());
    } else {
      throw ConfigError("unknown flag " + flag);
    }
  }
  options.command.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  return launch(options);
}

int fail_as(const std::string& kind, const std::string& text) {
  const auto env = read_rank_env();
  StoreClient store(env->store, Milliseconds(10'000), launchers_token(env->store));
  if (kind == "config") {
    leave_report(store, env->rank, ConfigError(text));
    return 2;
  }
  if (kind == "comm") {
    leave_report(store, env->rank, CommError("all_reduce", text));
  } else {
    leave_report(store, env->rank, DataError(text));
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
  if (verb == "set") {
    const auto env = read_rank_env();
    StoreClient(env->store, Milliseconds(10'000), launchers_token(env->store))
        .set(words.at(0), words.at(1));
    return 0;
  }
  return fail_as(words.at(0), words.at(1));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::serve_as_fork_server();
  try {
    return tandem::run(argv[1], {argv + 2, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return tandem::exit_code(error);
  }
}

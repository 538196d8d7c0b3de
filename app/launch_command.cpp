#include <algorithm>

#include "app/command_line.h"
#include "tandem/base/rank_env.h"
#include "tandem/launch/launcher.h"

namespace tandem::app {

namespace {

int parse_nproc(const std::string& text) {
  if (text == "auto" || text == "cpu") {
    return usable_cpus();
  }
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < 1 || value > 4096) {
    throw ConfigError(
        "[launch] --nproc-per-node is '" + text + "', expected 1 to 4096, auto or cpu");
  }
  return static_cast<int>(value);
}

}  // namespace

int run_launch(const Arguments& arguments) {
  CLI::App app(
      "Starts a program n times on this host, each with RANK, WORLD_SIZE, LOCAL_RANK, "
      "MASTER_ADDR and MASTER_PORT set. Flags are torchrun's; dashes or underscores.",
      "tandem launch");
  LaunchOptions options;
  std::string nproc = "1";
  bool ignored = false;
  app.add_option(
      "--nproc-per-node,--nproc_per_node,--nproc", nproc, "ranks; auto: one per CPU");
  app.add_option("--nnodes", options.nnodes, "hosts");
  app.add_option(
      "--node-rank,--node_rank", options.node_rank, "which host this is, from 0");
  app.add_option(
      "--master-addr,--master_addr", options.master_addr, "address of node 0");
  app.add_option(
      "--master-port,--master_port", options.master_port, "port; 0: a free one");
  app.add_option(
      "--grace-seconds,--grace_seconds", options.grace_seconds,
      "between SIGTERM and SIGKILL");
  app.add_flag("--standalone", ignored, "one host (the default)");
  app.add_flag(
      "--no-python,--no_python", ignored, "the program is run as it is (always)");
  app.add_option("program", options.command, "the program and its arguments");
  app.prefix_command();
  // Everything from the first word that is no flag belongs to the program.
  auto first = arguments.begin();
  while (first != arguments.end() && first->rfind("-", 0) == 0 && *first != "--") {
    const bool takes_value = first->find('=') == std::string::npos &&
                             *first != "--standalone" && first->rfind("--no", 0) != 0 &&
                             *first != "--help" && *first != "-h";
    const bool is_nnodes = *first == "--nnodes";
    first += (takes_value || is_nnodes) && first + 1 != arguments.end() ? 2 : 1;
  }
  parse(app, {arguments.begin(), first});
  if (first != arguments.end() && *first == "--") {
    ++first;
  }
  options.command.assign(first, arguments.end());
  options.nproc_per_node = parse_nproc(nproc);
  return launch(options);
}

}  // namespace tandem::app

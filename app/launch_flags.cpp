#include "app/launch_flags.h"

#include "app/command_line.h"
#include "tandem/base/log.h"
#include "tandem/base/rank_env.h"

namespace tandem::app {

namespace {

// Flags of torchrun that have no effect here.
const char* const kIgnoredOptions[] = {
    "--rdzv-backend,--rdzv_backend",
    "--rdzv-conf,--rdzv_conf",
    "--monitor-interval,--monitor_interval",
    "--start-method,--start_method",
    "--role",
    "--log-dir,--log_dir",
    "-r,--redirects",
    "-t,--tee",
    "--local-addr,--local_addr",
};

struct LaunchFlags {
  std::string nproc = "1";
  std::string nnodes = "1";
  std::string rdzv_endpoint;
  bool no_python = false;
  bool module = false;
  bool no_use_env = false;
  bool standalone = false;
  bool use_env = false;
};

void add_options(CLI::App& app, LaunchOptions& options, LaunchFlags& flags) {
  app.add_option(
      "--nproc-per-node,--nproc_per_node,--nproc", flags.nproc,
      "number of ranks on this host; auto: one per CPU, gpu: one per GPU");
  app.add_option("--nnodes", flags.nnodes, "number of hosts");
  app.add_option(
         "--node-rank,--node_rank", options.node_rank, "number of this host, from 0")
      ->check(whole_number(0, 1 << 16));
  app.add_option(
      "--master-addr,--master_addr", options.master_addr, "address of host 0");
  app.add_option(
         "--master-port,--master_port", options.master_port,
         "port of host 0; 0: a free port")
      ->check(whole_number(0, 65535));
  app.add_option(
      "--token-file", options.token.file,
      "file with the token of a run on several hosts, equal on each, mode 0600 (also "
      "TANDEM_TOKEN_FILE)");
  app.add_flag(
      "--insecure", options.token.insecure,
      "several hosts without a token: any process that reaches the port can join");
  app.add_flag(
      "--listen-all", options.listen_all,
      "host 0 listens on all its interfaces, not only on that of --master-addr");
  app.add_option(
         "--timeout-seconds,--timeout_seconds", options.timeout_seconds,
         "timeout of waiting for another host, in seconds")
      ->check(number(0.001, 1e7));
  app.add_option(
      "--rdzv-endpoint,--rdzv_endpoint", flags.rdzv_endpoint,
      "HOST:PORT of host 0, instead of --master-addr and --master-port");
  app.add_option(
      "--rdzv-id,--rdzv_id", options.run,
      "name of the run; hosts with another name are rejected");
  app.add_option(
      "--grace-seconds,--grace_seconds,--shutdown-timeout,--shutdown_timeout",
      options.grace_seconds, "seconds between SIGTERM and SIGKILL");
  app.add_option(
         "--max-restarts,--max_restarts", options.max_restarts,
         "restarts of all ranks after a rank fails; ranks read TANDEM_RESTART_COUNT")
      ->check(whole_number(0, 1 << 20));
  app.add_option(
         "--stall-warning,--stall_warning", options.stall_seconds,
         "seconds of waiting after which the ranks that others wait for are named, if "
         "the ranks use tandem's communicators; 0: never")
      ->check(number(0, 1e6));
  app.add_flag(
      "--standalone", flags.standalone, "one host and a free port (the default)");
  app.add_flag(
      "--no-python,--no_python", flags.no_python,
      "run NAME.py itself instead of python3 -u NAME.py");
  app.add_flag(
      "-m,--module", flags.module, "the program is a Python module: python3 -u -m");
  app.add_flag(
      "--use-env,--use_env", flags.use_env,
      "ranks read LOCAL_RANK (the default, as with torchrun)");
  app.add_flag(
      "--no-use-env,--no_use_env", flags.no_use_env,
      "also pass --local-rank=N, as torch.distributed.launch does without --use-env");
  for (const char* names : kIgnoredOptions) {
    app.add_option_function<std::string>(
           names, [](const std::string&) {}, "ignored")
        ->group("Flags of torchrun without effect here");
  }
  app.add_option("program", options.command, "program and its arguments");
}

// Returns the position of the program: the first word that is neither a flag nor the
// value of a flag. The program's arguments follow.
Arguments::const_iterator find_program(const CLI::App& app, const Arguments& all) {
  auto word = all.begin();
  while (word != all.end() && word->rfind('-', 0) == 0 && *word != "--") {
    const auto* option = app.get_option_no_throw(*word);
    const bool is_switch = *word == "-h" || *word == "--help" ||
                           (option != nullptr && option->get_items_expected_max() == 0);
    const bool has_value = word->find('=') != std::string::npos;
    word += is_switch || has_value || word + 1 == all.end() ? 1 : 2;
  }
  return word;
}

void say_what_is_ignored(const CLI::App& app, bool endpoint_ignored) {
  std::vector<std::string> ignored;
  for (const char* names : kIgnoredOptions) {
    const std::string text = names;
    const std::string name = text.substr(text.find("--"));
    const std::string first = name.substr(0, name.find(','));
    if (app.get_option(first)->count() > 0) {
      ignored.push_back(first);
    }
  }
  if (endpoint_ignored) {
    ignored.emplace_back("--rdzv-endpoint");
  }
  if (!ignored.empty()) {
    log_warning("[launch] without effect here: " + join(ignored) + "; leave them out");
  }
}

// Sets the address from --rdzv-endpoint. torchrun numbers hosts in the order in which
// they join, but tandem needs --node-rank.
void use_endpoint(const std::string& endpoint, bool numbered, LaunchOptions& options) {
  const size_t colon = endpoint.rfind(':');
  if (!numbered) {
    throw ConfigError(
        "[launch] --node-rank is missing, which --rdzv-endpoint needs here; add it, "
        "with 0 on the host of the endpoint");
  }
  if (colon == std::string::npos) {
    throw ConfigError(
        "[launch] --rdzv-endpoint is '" + endpoint +
        "', expected HOST:PORT; change it");
  }
  options.master_addr = endpoint.substr(0, colon);
  options.master_port =
      parse_count(endpoint.substr(colon + 1), "--rdzv-endpoint's port", 1, 65535);
}

// Adds python3 to the command of a rank if necessary, and sets the position of
// --local-rank.
void complete_command(const LaunchFlags& flags, LaunchOptions& options) {
  auto& command = options.command;
  if (flags.module && flags.no_python) {
    throw ConfigError(
        "[launch] --module needs Python; leave out --module or --no-python");
  }
  if (command.empty()) {
    return;
  }
  const std::string& program = command[0];
  const bool script = !flags.no_python && program.size() > 3 &&
                      program.compare(program.size() - 3, 3, ".py") == 0;
  options.local_rank_at = flags.no_use_env ? 1 : 0;
  if (flags.module || script) {
    Arguments python = {get_env("PYTHON_EXEC").value_or("python3"), "-u"};
    if (flags.module) {
      python.emplace_back("-m");
    }
    command.insert(command.begin(), python.begin(), python.end());
    options.local_rank_at += flags.no_use_env ? python.size() : 0;
  }
}

}  // namespace

LaunchCommand parse_launch(const Arguments& arguments) {
  CLI::App app(
      "Starts a program several times on this host, with RANK, WORLD_SIZE, LOCAL_RANK, "
      "MASTER_ADDR and MASTER_PORT set. Accepts the flags of torchrun and of python -m "
      "torch.distributed.launch, with dashes or underscores, then the program. The "
      "variables PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR, "
      "PET_MASTER_PORT, PET_RDZV_ENDPOINT and PET_RDZV_ID are defaults of the flags.",
      "tandem launch");
  LaunchCommand command;
  LaunchOptions& options = command.options;
  LaunchFlags flags;
  add_options(app, options, flags);
  app.prefix_command();
  const auto program = find_program(app, arguments);
  parse(
      app, command.variables.add_flags(
               {arguments.begin(), program}, TorchrunVariables::Command::launch));
  const bool dashes = program != arguments.end() && *program == "--";
  options.command.assign(program + (dashes ? 1 : 0), arguments.end());
  options.nproc_per_node = parse_nproc(flags.nproc, "--nproc-per-node");
  options.nnodes = flags.standalone ? 1 : parse_nnodes(flags.nnodes, "--nnodes");
  const bool has_endpoint = !flags.rdzv_endpoint.empty();
  const bool needs_endpoint = options.nnodes > 1 && options.master_port == 0;
  if (has_endpoint && needs_endpoint) {
    use_endpoint(
        flags.rdzv_endpoint, app.get_option("--node-rank")->count() > 0, options);
  }
  complete_command(flags, options);
  say_what_is_ignored(app, has_endpoint && !needs_endpoint);
  return command;
}

}  // namespace tandem::app

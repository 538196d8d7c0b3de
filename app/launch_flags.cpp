#include "app/launch_flags.h"

#include <utility>

#include "app/command_line.h"
#include "app/flag_names.h"
#include "app/torchrun_flags.h"
#include "app/torchrun_variables.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"

namespace tandem::app {

namespace {

struct LaunchFlags {
  std::string nproc = "1";
  std::string nnodes = "1";
  std::string rdzv_endpoint;
  bool no_python = false;
  bool module = false;
  bool no_use_env = false;
  bool standalone = false;
  bool use_env = false;
  bool run_path = false;
  TorchrunSettings torchrun;
};

void add_torchrun_options(CLI::App& app, TorchrunSettings& settings) {
  for (const auto& flag : torchrun_flags()) {
    const auto set = [&](const std::string& text) {
      flag.set(text, flag.names[0], settings);
    };
    app.add_option_function<std::string>(join(flag.names, ","), set, flag.help);
  }
  app.add_flag(
      "--virtual-local-rank", settings.options.virtual_local_rank,
      "each rank has LOCAL_RANK 0, and its own GPU in CUDA_VISIBLE_DEVICES");
}

void add_options(CLI::App& app, LaunchOptions& options, LaunchFlags& flags) {
  app.add_option(
      "--nproc-per-node,--nproc", flags.nproc,
      "number of ranks on this host; cpu: one per CPU, gpu: one per GPU, auto: gpu, or "
      "cpu without GPUs");
  app.add_option(
      "--nnodes", flags.nnodes,
      "number of hosts, or MIN:MAX if hosts may join and leave");
  app.add_option("--node-rank", options.node_rank, "number of this host, from 0")
      ->check(whole_number(0, 1 << 16));
  app.add_option("--master-addr", options.master_addr, "address of host 0");
  app.add_option("--master-port", options.master_port, "port of host 0; 0: a free port")
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
         "--timeout-seconds", options.timeout_seconds,
         "timeout of waiting for another host, in seconds")
      ->check(number(0.001, 1e7));
  app.add_option(
      "--rdzv-endpoint", flags.rdzv_endpoint,
      "HOST:PORT of host 0, instead of --master-addr and --master-port");
  app.add_option(
      "--rdzv-id", options.run,
      "name of the run; hosts with another name are rejected");
  app.add_option(
      "--grace-seconds,--shutdown-timeout", options.grace_seconds,
      "seconds between SIGTERM and SIGKILL");
  app.add_option(
         "--max-restarts", options.max_restarts,
         "restarts of all ranks after a rank fails; ranks read TANDEM_RESTART_COUNT")
      ->check(whole_number(0, 1 << 20));
  app.add_option(
         "--stall-warning", options.stall_seconds,
         "seconds of waiting after which the ranks that others wait for are named, if "
         "the ranks use tandem's communicators; 0: never")
      ->check(number(0, 1e6));
  app.add_option(
      "--metrics-address", options.metrics_address,
      "address of host 0 at which metrics are served");
  app.add_option(
         "--metrics-port", options.metrics_port,
         "port at which the launcher of host 0 serves metrics for Prometheus at "
         "/metrics, and statuses of ranks as JSON at /status; 0: none")
      ->check(whole_number(0, 65535));
  app.add_flag(
      "--standalone", flags.standalone, "one host and a free port (the default)");
  app.add_flag(
      "--no-python", flags.no_python,
      "run NAME.py itself instead of python3 -u NAME.py");
  app.add_flag(
      "-m,--module", flags.module, "the program is a Python module: python3 -u -m");
  app.add_flag(
      "--use-env", flags.use_env,
      "ranks read LOCAL_RANK (the default, as with torchrun)");
  app.add_flag(
      "--no-use-env", flags.no_use_env,
      "also pass --local-rank=N, as torch.distributed.launch does without --use-env");
  app.add_flag(
      "--run-path", flags.run_path,
      "the program is a Python script of any name: python3 -u SCRIPT");
  add_torchrun_options(app, flags.torchrun);
  app.add_option("program", options.command, "program and its arguments");
}

// Splits the arguments into flags, with dashes instead of underscores, and the program
// with its arguments. The program is the first word that is neither a flag nor the
// value of a flag.
std::pair<Arguments, Arguments> split_at_program(
    const CLI::App& app, const Arguments& all) {
  Arguments flags;
  auto word = all.begin();
  while (word != all.end() && word->rfind('-', 0) == 0 && *word != "--") {
    flags.push_back(with_dashes(*word));
    const auto* option = app.get_option_no_throw(flags.back());
    const bool is_switch = *word == "-h" || *word == "--help" ||
                           (option != nullptr && option->get_items_expected_max() == 0);
    const bool attached = word->size() > 2 && (*word)[1] != '-';
    const bool has_value = attached || word->find('=') != std::string::npos;
    ++word;
    if (!is_switch && !has_value && word != all.end()) {
      flags.push_back(*word++);
    }
  }
  if (word != all.end() && *word == "--") {
    ++word;
  }
  return {flags, {word, all.end()}};
}

// Sets the address from --rdzv-endpoint. torchrun numbers hosts in the order in which
// they join, but tandem needs --node-rank.
void use_endpoint(
    const std::string& endpoint, const std::string& backend, bool numbered,
    LaunchOptions& options) {
  constexpr int kPortOfC10d = 29400;
  const size_t colon = endpoint.rfind(':');
  if (!numbered) {
    throw ConfigError(
        "[launch] --node-rank is missing, which --rdzv-endpoint needs here; add it, "
        "with 0 on the host of the endpoint");
  }
  options.master_addr = endpoint.substr(0, colon);
  if (colon == std::string::npos && backend == "c10d") {
    options.master_port = kPortOfC10d;
    return;
  }
  if (colon == std::string::npos) {
    throw ConfigError(
        "[launch] --rdzv-endpoint is '" + endpoint +
        "', expected HOST:PORT; change it");
  }
  options.master_port =
      parse_count(endpoint.substr(colon + 1), "--rdzv-endpoint's port", 1, 65535);
}

// Adds python3 to the command of a rank if necessary, and sets the position of
// --local-rank.
void complete_command(const LaunchFlags& flags, LaunchOptions& options) {
  auto& command = options.command;
  if (flags.module && flags.no_python && !flags.run_path) {
    throw ConfigError(
        "[launch] --module needs Python; leave out --module or --no-python");
  }
  if (command.empty()) {
    return;
  }
  const std::string& program = command[0];
  const bool script = flags.run_path || (!flags.no_python && ends_with(program, ".py"));
  const bool module = flags.module && !flags.run_path;
  options.local_rank_at = flags.no_use_env ? 1 : 0;
  if (module || script) {
    Arguments python = {get_env("PYTHON_EXEC").value_or("python3"), "-u"};
    if (module) {
      python.emplace_back("-m");
    }
    command.insert(command.begin(), python.begin(), python.end());
    options.local_rank_at += flags.no_use_env ? python.size() : 0;
  }
}

}  // namespace

LaunchOptions parse_launch(const Arguments& arguments) {
  CLI::App app(
      "Starts a program several times on this host, with RANK, WORLD_SIZE, LOCAL_RANK, "
      "MASTER_ADDR and MASTER_PORT set. Accepts the flags of torchrun and of python -m "
      "torch.distributed.launch, with dashes or underscores, then the program. As with "
      "torchrun, variables such as PET_NNODES are defaults of the flags.",
      "tandem launch");
  LaunchOptions options;
  LaunchFlags flags;
  TorchrunVariables variables;
  add_options(app, options, flags);
  app.prefix_command();
  auto [given, program] = split_at_program(app, arguments);
  parse(app, variables.add_flags(given, TorchrunVariables::Command::launch));
  options.command = std::move(program);
  options.nproc_per_node = parse_nproc(flags.nproc, "--nproc-per-node");
  const auto hosts =
      flags.standalone ? HostCount() : parse_nnodes(flags.nnodes, "--nnodes");
  options.nnodes = hosts.most;
  options.min_nnodes = hosts.least;
  const bool has_endpoint = !flags.rdzv_endpoint.empty();
  const auto is_given = [&](const char* flag) {
    return app.get_option(flag)->count() > 0;
  };
  // On one host, the launcher listens at an address of its own choice.
  if (has_endpoint && options.nnodes > 1) {
    use_endpoint(
        flags.rdzv_endpoint, flags.torchrun.rdzv_backend, is_given("--node-rank"),
        options);
  }
  const bool has_master =
      is_given("--master-addr") || (has_endpoint && options.nnodes > 1);
  apply(flags.torchrun, has_master, is_given("--timeout-seconds"), options);
  complete_command(flags, options);
  variables.announce(options);
  return options;
}

}  // namespace tandem::app

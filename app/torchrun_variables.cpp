#include "app/torchrun_variables.h"

#include <fmt/core.h>

#include <functional>
#include <utility>

#include "app/flag_names.h"
#include "app/torchrun_flags.h"
#include "tandem/base/error.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"

namespace tandem::app {

namespace {

constexpr int kMostRanks = 4096;
constexpr int kMostHosts = 1 << 16;

struct Row {
  const char* variable;
  // The first flag is added to the arguments; the others are its synonyms.
  std::vector<std::string> flags;
  // Returns the value of the flag. Throws ConfigError for an invalid text.
  std::function<std::string(const std::string& text, const std::string& where)> value;
  bool launch_only = false;
  // True if the flag has no value. It is then added if the number in `value` is not 0.
  bool is_switch = false;
};

std::string any(const std::string& text, const std::string&) {
  return text;
}

template <int least, int most>
std::string number(const std::string& text, const std::string& where) {
  return std::to_string(parse_count(text, where, least, most));
}

Row switch_row(const char* variable, std::vector<std::string> flags) {
  return {variable, std::move(flags), &number<0, 1>, true, true};
}

Row row_of(const TorchrunFlag& flag) {
  const auto value = [set = flag.set](
                         const std::string& text, const std::string& where) {
    TorchrunSettings checked;
    set(text, where, checked);
    return text;
  };
  return {flag.variable, flag.all_names(), value, true};
}

std::vector<Row> make_rows() {
  std::vector<Row> rows = {
      {"PET_NPROC_PER_NODE",
       {"--nproc", "--nproc-per-node", "--nproc_per_node"},
       [](const std::string& text, const std::string& where) {
         return std::to_string(parse_nproc(text, where));
       }},
      {"PET_NNODES",
       {"--nnodes"},
       [](const std::string& text, const std::string& where) {
         parse_nnodes(text, where);
         return text;
       }},
      {"PET_NODE_RANK", {"--node-rank", "--node_rank"}, &number<0, kMostHosts - 1>},
      {"PET_MASTER_ADDR", {"--master-addr", "--master_addr"}, &any},
      {"PET_MASTER_PORT", {"--master-port", "--master_port"}, &number<0, 65535>},
      {"PET_RDZV_ENDPOINT", {"--rdzv-endpoint", "--rdzv_endpoint"}, &any, true},
      {"PET_MAX_RESTARTS", {"--max-restarts", "--max_restarts"}, &number<0, 1 << 20>},
      {"PET_RDZV_ID", {"--rdzv-id", "--rdzv_id"}, &any, true},
      {"PET_SHUTDOWN_TIMEOUT",
       {"--grace-seconds", "--grace_seconds", "--shutdown-timeout",
        "--shutdown_timeout"},
       &number<0, 1'000'000>,
       true},
      switch_row("PET_STANDALONE", {"--standalone"}),
      switch_row("PET_MODULE", {"--module", "-m"}),
      switch_row("PET_NO_PYTHON", {"--no-python", "--no_python"}),
      switch_row("PET_RUN_PATH", {"--run-path", "--run_path"}),
      switch_row(
          "PET_VIRTUAL_LOCAL_RANK", {"--virtual-local-rank", "--virtual_local_rank"}),
  };
  for (const auto& flag : torchrun_flags()) {
    if (*flag.variable != '\0') {
      rows.push_back(row_of(flag));
    }
  }
  return rows;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all = make_rows();
  return all;
}

}  // namespace

int parse_count(
    const std::string& text, const std::string& where, int least, int most,
    const std::string& or_else) {
  const auto value = parse_number<int>(text);
  if (!value || *value < least || *value > most) {
    throw ConfigError(fmt::format(
        "[launch] {} is '{}', expected {} to {}{}; change it", where, text, least, most,
        or_else));
  }
  return *value;
}

int parse_nproc(const std::string& text, const std::string& where) {
  if (text != "auto" && text != "cpu" && text != "gpu") {
    return parse_count(text, where, 1, kMostRanks, ", auto, cpu or gpu");
  }
  const int gpus = text == "cpu" ? 0 : count_gpus();
  if (gpus == 0 && text != "gpu") {
    return usable_cpus();
  }
  if (gpus == 0) {
    throw ConfigError(
        "[launch] " + where +
        " is gpu, expected a number, auto or cpu on a host without GPUs; change it");
  }
  return gpus;
}

HostCount parse_nnodes(const std::string& text, const std::string& where) {
  const size_t colon = text.find(':');
  HostCount count;
  count.least = parse_count(text.substr(0, colon), where, 1, kMostHosts);
  count.most = colon == std::string::npos
                   ? count.least
                   : parse_count(text.substr(colon + 1), where, 1, kMostHosts);
  if (count.least > count.most) {
    throw ConfigError(
        "[launch] " + where + " is '" + text +
        "', expected MIN:MAX with MIN at most MAX; change it");
  }
  return count;
}

Arguments TorchrunVariables::add_flags(Arguments arguments, Command command) {
  if (get_("RANK")) {
    return arguments;
  }
  const auto given = arguments;
  for (const auto& row : rows()) {
    const auto text = get_(row.variable).value_or("");
    if (text.empty() || has_flag(given, row.flags) ||
        (row.launch_only && command != Command::launch)) {
      continue;
    }
    const auto value = row.value(text, row.variable);
    if (!row.is_switch) {
      arguments.insert(arguments.end(), {row.flags[0], value});
    } else if (value != "0") {
      arguments.push_back(row.flags[0]);
    }
    found_ += (found_.empty() ? "" : ", ") + std::string(row.variable) + "=" + text;
  }
  return arguments;
}

Variables TorchrunVariables::none() {
  Variables variables;
  for (const auto& row : rows()) {
    variables.emplace_back(row.variable, "");
  }
  return variables;
}

void TorchrunVariables::announce(const LaunchOptions& options) const {
  if (found_.empty()) {
    return;
  }
  const int ranks = options.nnodes * options.nproc_per_node;
  log_info(fmt::format(
      "[launch] {} {}: {} on each of {} {}, this is host {} ({})", ranks,
      ranks == 1 ? "rank" : "ranks", options.nproc_per_node, options.nnodes,
      options.nnodes == 1 ? "host" : "hosts", options.node_rank, found_));
}

}  // namespace tandem::app

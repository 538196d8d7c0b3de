#include "app/torchrun_variables.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <functional>

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

// A variable that has the default of a flag.
struct Row {
  // The flag, such as --node-rank for PET_NODE_RANK, and its synonyms.
  std::vector<std::string> flags;
  // Returns the value of the flag. Throws ConfigError for an invalid text.
  std::function<std::string(const std::string& text, const std::string& where)> value;
  bool launch_only = false;
  // True if the flag has no value. It is then added if the number in `value` is not 0.
  bool is_switch = false;

  std::string variable() const {
    std::string name = "PET_" + flags[0].substr(2);
    std::replace(name.begin(), name.end(), '-', '_');
    std::transform(name.begin(), name.end(), name.begin(), ::toupper);
    return name;
  }
};

std::string any(const std::string& text, const std::string&) {
  return text;
}

template <int least, int most>
std::string number(const std::string& text, const std::string& where) {
  return std::to_string(parse_count(text, where, least, most));
}

std::vector<Row> make_rows() {
  std::vector<Row> rows = {
      {{"--nproc-per-node", "--nproc"},
       [](const std::string& text, const std::string& where) {
         return std::to_string(parse_nproc(text, where));
       }},
      {{"--nnodes"},
       [](const std::string& text, const std::string& where) {
         parse_nnodes(text, where);
         return text;
       }},
      {{"--node-rank"}, &number<0, kMostHosts - 1>},
      {{"--master-addr"}, &any},
      {{"--master-port"}, &number<0, 65535>},
      {{"--rdzv-endpoint"}, &any, true},
      {{"--max-restarts"}, &number<0, 1 << 20>},
      {{"--rdzv-id"}, &any, true},
      {{"--shutdown-timeout", "--grace-seconds"}, &number<0, 1'000'000>, true},
      {{"--standalone"}, &number<0, 1>, true, true},
      {{"--module", "-m"}, &number<0, 1>, true, true},
      {{"--no-python"}, &number<0, 1>, true, true},
      {{"--run-path"}, &number<0, 1>, true, true},
      {{"--virtual-local-rank"}, &number<0, 1>, true, true},
  };
  for (const auto& flag : torchrun_flags()) {
    if (flag.has_variable) {
      const auto value = [&flag](const std::string& text, const std::string& where) {
        TorchrunSettings ignored;
        flag.set(text, where, ignored);
        return text;
      };
      rows.push_back({flag.names, value, true});
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
    const std::string variable = row.variable();
    const auto text = get_(variable).value_or("");
    if (text.empty() || has_flag(given, row.flags) ||
        (row.launch_only && command != Command::launch)) {
      continue;
    }
    const auto value = row.value(text, variable);
    if (!row.is_switch) {
      arguments.insert(arguments.end(), {row.flags[0], value});
    } else if (value != "0") {
      arguments.push_back(row.flags[0]);
    }
    found_ += (found_.empty() ? "" : ", ") + variable + "=" + text;
  }
  return arguments;
}

Variables TorchrunVariables::none() {
  Variables variables;
  for (const auto& row : rows()) {
    variables.emplace_back(row.variable(), "");
  }
  return variables;
}

void TorchrunVariables::announce(const LaunchOptions& options) const {
  if (found_.empty()) {
    return;
  }
  const int ranks = options.nnodes * options.nproc_per_node;
  log_info(fmt::format(
      "[launch] {}: {} on each of {}, this is host {} ({})", counted(ranks, "rank"),
      options.nproc_per_node, counted(options.nnodes, "host"), options.node_rank,
      found_));
}

}  // namespace tandem::app

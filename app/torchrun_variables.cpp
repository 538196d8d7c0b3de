#include "app/torchrun_variables.h"

#include <fmt/core.h>

#include "app/flag_names.h"
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
  std::string (*check)(const std::string& text, const std::string& where);
  bool launch_only = false;
};

std::string any(const std::string& text, const std::string&) {
  return text;
}

template <int least, int most>
std::string number(const std::string& text, const std::string& where) {
  return std::to_string(parse_count(text, where, least, most));
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"PET_NPROC_PER_NODE",
       {"--nproc", "--nproc-per-node", "--nproc_per_node"},
       [](const std::string& text, const std::string& where) {
         return std::to_string(parse_nproc(text, where));
       }},
      {"PET_NNODES",
       {"--nnodes"},
       [](const std::string& text, const std::string& where) {
         return std::to_string(parse_nnodes(text, where));
       }},
      {"PET_NODE_RANK", {"--node-rank", "--node_rank"}, &number<0, kMostHosts - 1>},
      {"PET_MASTER_ADDR", {"--master-addr", "--master_addr"}, &any},
      {"PET_MASTER_PORT", {"--master-port", "--master_port"}, &number<0, 65535>},
      {"PET_RDZV_ENDPOINT", {"--rdzv-endpoint", "--rdzv_endpoint"}, &any, true},
      {"PET_MAX_RESTARTS",
       {"--max-restarts", "--max_restarts"},
       &number<0, 1 << 20>},
      {"PET_RDZV_ID", {"--rdzv-id", "--rdzv_id"}, &any, true},
  };
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
  if (text == "auto" || text == "cpu") {
    return usable_cpus();
  }
  if (text != "gpu") {
    return parse_count(text, where, 1, kMostRanks, ", auto, cpu or gpu");
  }
  const int gpus = count_gpus();
  if (gpus == 0) {
    throw ConfigError(
        "[launch] " + where +
        " is gpu, expected a number, auto or cpu on a host without GPUs; change it");
  }
  return gpus;
}

int parse_nnodes(const std::string& text, const std::string& where) {
  const size_t colon = text.find(':');
  const std::string least = text.substr(0, colon);
  if (colon != std::string::npos && least != text.substr(colon + 1)) {
    throw ConfigError(
        "[launch] " + where + " is '" + text +
        "', expected one number, because it cannot change during a run; change it");
  }
  return parse_count(colon == std::string::npos ? text : least, where, 1, kMostHosts);
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
    arguments.push_back(row.flags[0]);
    arguments.push_back(row.check(text, row.variable));
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

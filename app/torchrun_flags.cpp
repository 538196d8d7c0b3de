#include "app/torchrun_flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "tandem/base/error.h"
#include "tandem/base/store/socket.h"
#include "tandem/base/text.h"

namespace tandem::app {

namespace {

void check_filters(const LogOptions& logs) {
  const auto refuse = [](const std::string& flag, const std::string& values) {
    throw ConfigError(
        "[launch] " + flag + " needs --tee " + values +
        ", because it copies lines of teed streams; add --tee");
  };
  if (!logs.output_filters.empty() && !logs.teed.any(&StreamChoice::output)) {
    refuse("--duplicate-stdout-filters", "1 or 3");
  }
  if (!logs.error_filters.empty() && !logs.teed.any(&StreamChoice::errors)) {
    refuse("--duplicate-stderr-filters", "2 or 3");
  }
}

// Returns whether two addresses of this host belong to the same interface.
bool is_same_address(const std::string& one, const std::string& other) {
  try {
    return one == other || local_address_towards(one) == local_address_towards(other);
  } catch (const CommError&) {
    return false;
  }
}

// On host 0, sets the address if no other flag does. On other hosts, torchrun does not
// use the address either.
void use_local_address(
    const std::string& address, bool has_master, LaunchOptions& options) {
  if (address.empty() || options.node_rank > 0) {
    return;
  }
  if (!has_master) {
    options.master_addr = address;
  } else if (options.nnodes > 1 && !is_same_address(address, options.master_addr)) {
    throw ConfigError(
        "[launch] --local-addr is '" + address +
        "' on host 0, expected the address at which the other hosts find it, '" +
        options.master_addr + "'; leave out --local-addr");
  }
}

[[noreturn]] void refuse(
    const std::string& where, const std::string& text, const std::string& expected,
    const std::string& action = "change it") {
  throw ConfigError(fmt::format(
      "[launch] {} is '{}', expected {}; {}", where, text, expected, action));
}

void set_rdzv_backend(
    const std::string& text, const std::string& where, TorchrunSettings& settings) {
  if (text != "static" && text != "c10d") {
    refuse(
        where, text, "static or c10d, because the launcher of host 0 is the store",
        "leave it out, or change it");
  }
  settings.rdzv_backend = text;
}

bool parse_switch(const std::string& text, const std::string& where) {
  const auto value = parse_bool(text);
  if (!value) {
    refuse(where, text, "true or false");
  }
  return *value;
}

double parse_seconds(const std::string& text, const std::string& where) {
  constexpr double kMost = 1e7;
  const auto seconds = parse_number<double>(text);
  if (!seconds || *seconds <= 0 || *seconds > kMost) {
    refuse(where, text, "a number of seconds above 0, at most 10000000");
  }
  return *seconds;
}

// Sets KEY=VALUE,... The longest of several timeouts is used, since each of them is a
// part of the wait for other hosts.
void set_rdzv_conf(
    const std::string& text, const std::string& where, TorchrunSettings& settings) {
  for (const auto& part : split(text, ',')) {
    const size_t equals = std::min(part.find('='), part.size());
    const std::string key = part.substr(0, equals);
    const std::string value = part.substr(std::min(equals + 1, part.size()));
    const std::string what = where + "'s " + key;
    if (key == "join_timeout" || key == "timeout" || key == "read_timeout") {
      settings.timeout_seconds =
          std::max(settings.timeout_seconds.value_or(0), parse_seconds(value, what));
    } else if (key == "is_host") {
      settings.is_host = parse_switch(value, what);
    } else if (key != "store_type" || value != "tcp") {
      refuse(
          where, part,
          "KEY=VALUE,... with the keys join_timeout, timeout, read_timeout and is_host",
          "leave the others out");
    }
  }
}

void set_monitor_interval(
    const std::string& text, const std::string& where, TorchrunSettings&) {
  parse_seconds(text, where);
}

void set_start_method(
    const std::string& text, const std::string& where, TorchrunSettings&) {
  if (text != "spawn" && text != "fork" && text != "forkserver") {
    refuse(where, text, "spawn, fork or forkserver");
  }
}

void set_event_log_handler(
    const std::string& text, const std::string& where, TorchrunSettings&) {
  if (text != "null") {
    refuse(
        where, text, "null, because tandem records no events",
        "leave it out; the log files and error files of --log-dir are alternatives");
  }
}

void set_role(const std::string& text, const std::string&, TorchrunSettings& settings) {
  settings.options.role = text;
}

void set_log_dir(
    const std::string& text, const std::string& where, TorchrunSettings& settings) {
  if (text == "/dev/null") {
    refuse(
        where, text, "a directory",
        "leave it out; without --redirects and --tee there are no log files");
  }
  settings.options.logs.directory = text;
}

[[noreturn]] void refuse_streams(const std::string& where, const std::string& text) {
  refuse(
      where, text,
      "0 (no stream), 1 (output), 2 (errors) or 3 (both), or such a number for some "
      "local ranks as in 0:3,1:2");
}

StreamChoice parse_one(
    const std::string& digit, const std::string& where, const std::string& text) {
  if (digit.size() != 1 || digit[0] < '0' || digit[0] > '3') {
    refuse_streams(where, text);
  }
  const int bits = digit[0] - '0';
  return {(bits & 1) != 0, (bits & 2) != 0};
}

StreamsOfRanks parse_streams(const std::string& text, const std::string& where) {
  StreamsOfRanks streams;
  if (text.find(':') == std::string::npos) {
    streams.of_others = parse_one(text, where, text);
    return streams;
  }
  for (const auto& part : split(text, ',')) {
    const size_t colon = std::min(part.find(':'), part.size());
    const auto rank = parse_number<int>(part.substr(0, colon));
    if (!rank || *rank < 0 || colon == part.size()) {
      refuse_streams(where, text);
    }
    streams.of_rank[*rank] = parse_one(part.substr(colon + 1), where, text);
  }
  return streams;
}

void set_redirects(
    const std::string& text, const std::string& where, TorchrunSettings& settings) {
  settings.options.logs.redirected = parse_streams(text, where);
}

void set_tee(
    const std::string& text, const std::string& where, TorchrunSettings& settings) {
  settings.options.logs.teed = parse_streams(text, where);
}

void set_local_ranks_filter(
    const std::string& text, const std::string& where, TorchrunSettings& settings) {
  for (const auto& part : split(text, ',')) {
    const auto rank = parse_number<int>(part);
    if (!rank || *rank < 0) {
      refuse(where, text, "local ranks such as 0,1,2");
    }
    settings.options.logs.shown.insert(*rank);
  }
}

// Splits texts at commas. Two commas are a comma in a text.
std::vector<std::string> split_filters(const std::string& text) {
  std::vector<std::string> filters;
  std::string filter;
  for (size_t i = 0; i <= text.size(); ++i) {
    const bool comma = i < text.size() && text[i] == ',';
    if (comma && i + 1 < text.size() && text[i + 1] == ',') {
      filter += ',';
      ++i;
    } else if (comma || i == text.size()) {
      if (!filter.empty()) {
        filters.push_back(filter);
      }
      filter.clear();
    } else {
      filter += text[i];
    }
  }
  return filters;
}

void set_stdout_filters(
    const std::string& text, const std::string&, TorchrunSettings& settings) {
  settings.options.logs.output_filters = split_filters(text);
}

void set_stderr_filters(
    const std::string& text, const std::string&, TorchrunSettings& settings) {
  settings.options.logs.error_filters = split_filters(text);
}

void set_local_addr(
    const std::string& text, const std::string&, TorchrunSettings& settings) {
  settings.local_addr = text;
}

void set_signals(const std::string& text, const std::string& where, TorchrunSettings&) {
  for (const auto& name : split(text, ',')) {
    const std::array<const char*, 6> forwarded = {"SIGTERM", "SIGINT",  "SIGHUP",
                                                  "SIGQUIT", "SIGUSR1", "SIGUSR2"};
    if (std::find(forwarded.begin(), forwarded.end(), name) == forwarded.end()) {
      refuse(
          where, text,
          "signals out of SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and "
          "SIGUSR2, which the ranks always get",
          "leave out the others");
    }
  }
}

void refuse_logs_specs(
    const std::string& text, const std::string& where, TorchrunSettings&) {
  throw ConfigError(fmt::format(
      "[launch] {} is '{}', a Python class, which tandem cannot load; leave it out and "
      "use --log-dir, --redirects, --tee and --local-ranks-filter",
      where, text));
}

void refuse_numa_binding(
    const std::string& text, const std::string& where, TorchrunSettings&) {
  throw ConfigError(fmt::format(
      "[launch] {} is '{}', but tandem does not bind ranks to CPUs; leave it out, and "
      "start the program with numactl if necessary",
      where, text));
}

}  // namespace

void apply(
    const TorchrunSettings& settings, bool has_master, bool has_timeout,
    LaunchOptions& options) {
  use_local_address(settings.local_addr, has_master, options);
  if (settings.timeout_seconds && !has_timeout) {
    options.timeout_seconds = *settings.timeout_seconds;
  }
  if (settings.is_host && *settings.is_host != (options.node_rank == 0)) {
    throw ConfigError(fmt::format(
        "[launch] --rdzv-conf's is_host is {} on host {}, expected true on host 0 and "
        "false on other hosts; change it or --node-rank",
        *settings.is_host, options.node_rank));
  }
  check_filters(settings.options.logs);
  options.torchrun = settings.options;
}

const std::vector<TorchrunFlag>& torchrun_flags() {
  static const std::vector<TorchrunFlag> all = {
      {{"--rdzv-backend"},
       "static or c10d; hosts always meet at the launcher of host 0",
       &set_rdzv_backend},
      {{"--rdzv-conf"},
       "KEY=VALUE,...: join_timeout, timeout and read_timeout are --timeout-seconds; "
       "is_host must be true on host 0 only",
       &set_rdzv_conf},
      {{"--local-addr"},
       "address of this host: on host 0 the default of --master-addr",
       &set_local_addr},
      {{"--log-dir"},
       "folder for the log files and error files of ranks: "
       "DIR/RUN_XXXXXX/attempt_N/LOCAL_RANK/stdout.log, stderr.log, error.json",
       &set_log_dir},
      {{"--redirects", "-r"},
       "streams of ranks in log files instead of on the console: 0 none, 1 output, 2 "
       "errors, 3 both; for some local ranks: 0:3,1:2",
       &set_redirects},
      {{"--tee", "-t"},
       "streams of ranks in log files and on the console; values as of --redirects",
       &set_tee},
      {{"--local-ranks-filter"},
       "local ranks whose lines appear on the console, such as 0,1; default: all",
       &set_local_ranks_filter},
      {{"--duplicate-stdout-filters"},
       "TEXT,...: output lines of --tee with any of the texts are also written to "
       "attempt_N/filtered_stdout.log; ,, is a comma",
       &set_stdout_filters},
      {{"--duplicate-stderr-filters"},
       "as --duplicate-stdout-filters, for standard error and filtered_stderr.log",
       &set_stderr_filters},
      {{"--role"},
       "value of ROLE_NAME, equal on all hosts; default: default",
       &set_role},
      {{"--monitor-interval"},
       "number of seconds; the launcher always notices the end of a rank immediately",
       &set_monitor_interval},
      {{"--start-method"},
       "spawn, fork or forkserver; has no effect on programs, as with torchrun",
       &set_start_method},
      {{"--signals-to-handle"},
       "any of SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2, which are always "
       "forwarded to ranks (SIGHUP and SIGQUIT as SIGTERM)",
       &set_signals},
      {{"--event-log-handler"},
       "only null: tandem records no events",
       &set_event_log_handler},
      {{"--logs-specs"}, "not available: a Python class", &refuse_logs_specs, false},
      {{"--numa-binding"}, "not available: use numactl", &refuse_numa_binding, false},
  };
  return all;
}

}  // namespace tandem::app

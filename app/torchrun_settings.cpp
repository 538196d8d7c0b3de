#include "app/torchrun_settings.h"

#include <fmt/core.h>

#include "tandem/base/error.h"
#include "tandem/base/store/socket.h"

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

}  // namespace tandem::app

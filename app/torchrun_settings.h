#pragma once

#include <optional>
#include <string>

#include "tandem/launch/launcher.h"

namespace tandem::app {

/// Values of the flags in torchrun_flags() (torchrun_flags.h).
struct TorchrunSettings {
  TorchrunOptions options;
  std::string rdzv_backend = "static";
  // Timeout of the rendezvous, in seconds.
  std::optional<double> timeout_seconds;
  // True if this host serves the rendezvous store; nullopt if no flag states it.
  std::optional<bool> is_host;
  // Address of this host; "" if no flag names it.
  std::string local_addr;
};

/// Sets the options of the launcher, whose number of hosts, number of this host and
/// address of host 0 must be set. `has_master`: true if a flag names the address of
/// host 0. `has_timeout`: true if options.timeout_seconds overrides the settings.
/// Throws ConfigError for settings that contradict each other or the options.
void apply(
    const TorchrunSettings& settings, bool has_master, bool has_timeout,
    LaunchOptions& options);

}  // namespace tandem::app

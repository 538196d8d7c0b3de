#pragma once

#include <optional>
#include <string>
#include <vector>

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

/// Sets the options of the launcher. The number of hosts, the number of this host and
/// the address of host 0 must already be set. `has_master` is true if a flag names the
/// address of host 0. `has_timeout` is true if options.timeout_seconds overrides the
/// settings. Throws ConfigError for settings that contradict each other or the options.
void apply(
    const TorchrunSettings& settings, bool has_master, bool has_timeout,
    LaunchOptions& options);

/// A flag of torchrun that has a value and that `tandem train` does not have.
struct TorchrunFlag {
  // Names, such as "--tee" and "-t". The first one appears in errors.
  std::vector<std::string> names;
  const char* help;
  // Sets the value in `settings`. If tandem cannot do what the value requests, throws
  // ConfigError. The message contains `where`, the name of the flag or variable.
  void (*set)(
      const std::string& text, const std::string& where, TorchrunSettings& settings);
  // True if the variable PET_NAME has the default of the flag.
  bool has_variable = true;
};

/// Returns the flags. If a value requests something that tandem always does, or
/// something that has no effect in torchrun either, the flag does nothing.
const std::vector<TorchrunFlag>& torchrun_flags();

}  // namespace tandem::app

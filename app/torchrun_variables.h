#pragma once

#include <string>

#include "app/command.h"
#include "tandem/base/rank_env.h"
#include "tandem/launch/launcher.h"

namespace tandem::app {

/// Parses the number of ranks on this host. `text` is a number, cpu (one rank per
/// usable CPU), gpu (one rank per GPU), or auto (gpu, or cpu on a host without GPUs).
/// Throws ConfigError for any other text. The message contains `where`, the name of the
/// flag or variable that has the text.
int parse_nproc(const std::string& text, const std::string& where);

/// Number of hosts. Hosts may join and leave if `least` is less than `most`.
struct HostCount {
  int least = 1;
  int most = 1;
};

/// Parses the number of hosts: a number, or torchrun's MIN:MAX. Throws the errors of
/// parse_nproc().
HostCount parse_nnodes(const std::string& text, const std::string& where);

/// Parses a whole number from `least` to `most`. `or_else` is a text about other
/// accepted values for the error, or "". Throws the errors of parse_nproc().
int parse_count(
    const std::string& text, const std::string& where, int least, int most,
    const std::string& or_else = "");

/// Environment variables that set the defaults of torchrun's flags: PET_NNODES is the
/// default of --nnodes. Kubeflow's trainer sets only these variables.
class TorchrunVariables {
 public:
  enum class Command { launch, train };

  explicit TorchrunVariables(GetEnv get = get_env) : get_(std::move(get)) {}

  /// Returns the arguments, with a flag added for each variable that is set and whose
  /// flag is missing. Workers and config.toml thus also get the values of the
  /// variables. If the variable RANK is set, adds no flags. Throws ConfigError, with
  /// the name of the variable, for an invalid value.
  Arguments add_flags(Arguments arguments, Command command);

  /// Returns the variables of torchrun's flags with empty values. Add them to the
  /// environment of a process of another run, so that the process ignores this run's
  /// variables.
  static Variables none();

  /// If add_flags() used variables, logs them, the numbers of ranks and hosts, and this
  /// host's number. Otherwise logs nothing.
  void announce(const LaunchOptions& options) const;

 private:
  GetEnv get_;
  // Variables for which add_flags() added flags, such as "PET_NNODES=2,
  // PET_NODE_RANK=1".
  std::string found_;
};

}  // namespace tandem::app

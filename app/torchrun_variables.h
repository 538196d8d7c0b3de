#pragma once

#include <string>

#include "app/command.h"
#include "tandem/base/rank_env.h"
#include "tandem/launch/launcher.h"

namespace tandem::app {

/// Parses the number of ranks on this host: a number, auto or cpu (one per usable CPU),
/// or gpu (one per GPU). Throws ConfigError that names `where`, a flag or a variable.
int parse_nproc(const std::string& text, const std::string& where);

/// Parses the number of hosts: a number, or torchrun's MIN:MAX if both are equal.
/// Throws as above.
int parse_nnodes(const std::string& text, const std::string& where);

/// Parses a whole number. Throws as above.
int parse_count(
    const std::string& text, const std::string& where, int least, int most,
    const std::string& or_else = "");

/// torchrun's variables, which are the defaults of its flags: PET_NNODES is the default
/// of --nnodes. Kubeflow's trainer sets only these variables.
class TorchrunVariables {
 public:
  enum class Command { launch, train };

  explicit TorchrunVariables(GetEnv get = get_env) : get_(std::move(get)) {}

  /// Returns the arguments of a command, with a flag added for each variable whose flag
  /// is missing. Workers and config.toml then have its value too. A process that has a
  /// RANK ignores the variables. Throws ConfigError that names a variable with a bad
  /// value.
  Arguments add_flags(Arguments arguments, Command command);

  /// Returns empty variables: they hide torchrun's from a process of another run.
  static Variables none();

  /// Prints the number of ranks if variables were used.
  void announce(const LaunchOptions& options) const;

 private:
  GetEnv get_;
  // "PET_NNODES=2, PET_NODE_RANK=1".
  std::string found_;
};

}  // namespace tandem::app

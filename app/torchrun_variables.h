#pragma once

#include <string>

#include "app/command.h"
#include "tandem/base/rank_env.h"
#include "tandem/launch/launcher.h"

namespace tandem::app {

/// Ranks on this host: a number, auto or cpu (one per usable CPU), or gpu (one per
/// GPU). Throws ConfigError that names `where`, a flag or a variable.
int parse_nproc(const std::string& text, const std::string& where);

/// Hosts: a number, or torchrun's MIN:MAX if both are the same. Throws as above.
int parse_nnodes(const std::string& text, const std::string& where);

/// A whole number. Throws as above.
int parse_count(
    const std::string& text, const std::string& where, int least, int most,
    const std::string& or_else = "");

/// torchrun's variables, which are the defaults of its flags: PET_NNODES is that of
/// --nnodes. Kubeflow's trainer sets only these.
class TorchrunVariables {
 public:
  enum class Command { launch, train };

  explicit TorchrunVariables(GetEnv get = get_env) : get_(std::move(get)) {}

  /// The arguments of a command, with a flag added for each variable whose flag they
  /// lack: workers and config.toml so have its value too. A process that has a RANK
  /// ignores the variables. Throws ConfigError that names a variable with a bad value.
  Arguments add_flags(Arguments arguments, Command command);

  /// Hides the variables from a process that is started for a run of its own.
  static Variables none();

  /// Prints how many ranks there will be, if variables decided that.
  void announce(const LaunchOptions& options) const;

 private:
  GetEnv get_;
  // "PET_NNODES=2, PET_NODE_RANK=1".
  std::string found_;
};

}  // namespace tandem::app

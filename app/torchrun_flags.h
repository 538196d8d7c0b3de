#pragma once

#include <string>
#include <vector>

#include "app/torchrun_settings.h"

namespace tandem::app {

/// A flag of torchrun that has a value and that `tandem train` does not have.
struct TorchrunFlag {
  // Names for CLI11. The first one appears in errors.
  const char* names;
  // Environment variable with the default of the flag; "" if torchrun has none.
  const char* variable;
  const char* help;
  // Sets the value in `settings`. If tandem cannot do what the value requests, throws
  // ConfigError. The message contains `where`, the name of the flag or variable.
  void (*set)(
      const std::string& text, const std::string& where, TorchrunSettings& settings);

  /// Returns all names, such as "--log-dir" and "--log_dir".
  std::vector<std::string> all_names() const;
};

/// Returns the flags. If a value requests something that tandem always does, or
/// something that has no effect in torchrun either, the flag does nothing.
const std::vector<TorchrunFlag>& torchrun_flags();

}  // namespace tandem::app

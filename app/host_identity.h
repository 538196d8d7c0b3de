#pragma once

#include <memory>
#include <optional>
#include <string>

#include "app/train_flags.h"
#include "tandem/data/prepared_data.h"

namespace tandem::app {

/// Compares the settings and data of the hosts of a run before their launchers join
/// (LaunchOptions::identity).
class HostIdentity {
 public:
  /// `reader` may be null; data are then not compared. It must outlive the object and
  /// identify the data. `arguments` are those of `train`.
  HostIdentity(
      Arguments arguments, const RunConfig& config, EarlierSettings earlier,
      DataReader* reader);

  /// Returns a text for this host, or nullopt while its data are read. Throws the
  /// errors of load_dataset().
  std::optional<std::string> text();

  /// Compares this host with text() of host 0. Returns false while the data of this
  /// host are read. Throws ConfigError, which names the setting or the part of the
  /// data, if this host differs. Throws the errors of load_dataset().
  bool check(const std::string& host_0);

 private:
  const Arguments arguments_;
  const RunConfig config_;
  const EarlierSettings earlier_;
  DataReader* reader_;
  // Text of host 0 that check() has accepted.
  std::string accepted_;
};

}  // namespace tandem::app

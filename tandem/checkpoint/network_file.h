#pragma once

#include <string>

#include "tandem/config/run_config.h"

namespace tandem {

// Network files of runs with --model FILE. The directory of a run contains a copy of
// the file, RUN/network.pt2 or RUN/network.pt. With the copy, the run can be resumed
// and evaluated even if the original file is changed or removed.

/// Returns the path of the network file of a run with ModelKind::file. If the run
/// resumes with the model of the run's config.toml, this is the path of the copy in the
/// run's directory. For another model, or without a copy, it is config.model.file.
///
/// A copy that is TorchScript is used only if config.model.trust is `all`, or if the
/// run was started again after a failure; otherwise, the file is config.model.file.
/// Throws DataError if the file does not exist, ConfigError if config.model.trust
/// excludes it.
std::string network_file(const RunConfig& config);

/// Copies network_file(config) into the directory of a run, atomically. Replaces
/// another copy there, so a run that is started again can trust the copy. Throws
/// DataError if a file cannot be read or written, and the errors of network_file().
void keep_network_file(const RunConfig& config, const std::string& run);

/// Identifies the network file of a checkpoint.
struct CheckpointNetwork {
  // Path of a file in the checkpoint's directory, from which the run's directory is
  // found.
  std::string checkpoint;
  // Path of the network file when the run was trained.
  std::string file;
  // SHA-256 of the network file; "" accepts any file.
  std::string sha256;
};

/// Returns the path of the network file of a checkpoint. If the file is TorchScript, it
/// must be `asked`, or `trusts_scripts` must be true. If `asked` is not "", the file
/// is `asked`. Otherwise, it is the copy in the run's directory, or
/// CheckpointNetwork::file if the copy is missing or has another SHA-256. Throws
/// DataError if none of these files exists, ConfigError if the files that exist have
/// another SHA-256, or if the
/// file is TorchScript that is not trusted.
std::string network_file_of(
    const CheckpointNetwork& network, const std::string& asked = "",
    bool trusts_scripts = false);

}  // namespace tandem

#pragma once

#include <string>

#include "tandem/config/run_config.h"

namespace tandem {

// Network files of runs with --model FILE. A run directory has a copy of the run's
// file, RUN/network.pt2 or RUN/network.pt. So the run can be resumed and its
// checkpoints can be evaluated if the file itself is changed or removed.

/// Returns the path of the network file of a run with ModelKind::file. If the run
/// resumes, the path is that of the copy in the resumed run's directory, unless
/// `config` has another model than the run's config.toml or there is no copy.
/// Otherwise, it is config.model.file. Throws DataError if the file does not exist.
std::string network_file(const RunConfig& config);

/// Copies network_file(config) into the directory of a run, atomically. Replaces the
/// copy of an earlier run. With `resumed`, keeps an existing copy. Throws DataError.
void keep_network_file(const RunConfig& config, const std::string& run, bool resumed);

/// Network of a checkpoint.
struct CheckpointNetwork {
  // Path of a file in the checkpoint's directory.
  std::string checkpoint;
  // Path of the network file when the run was trained.
  std::string file;
  // SHA-256 of the network file; "" accepts any file.
  std::string sha256;
};

/// Returns the path of the network file of a checkpoint: `asked`, or, if it is "", the
/// copy in the run's directory or CheckpointNetwork::file. Throws DataError if no such
/// file exists, ConfigError if it has another SHA-256.
std::string network_file_of(
    const CheckpointNetwork& network, const std::string& asked = "");

}  // namespace tandem

#pragma once

#include <string>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_files.h"

namespace tandem {

/// Returns the position, times and texts of a checkpoint as the metadata of its
/// training state.
[[nodiscard]] FileMetadata metadata_of(const CheckpointContent& content);

/// Returns the content, without tensors, of a checkpoint whose model and training state
/// have these metadata. `path` is the checkpoint in errors. Throws DataError if an
/// entry is missing.
[[nodiscard]] CheckpointContent content_of(
    FileMetadata model, const FileMetadata& training, const std::string& path);

}  // namespace tandem

#pragma once

#include <string>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// Reads the tensors of what Python's torch.save wrote: a state dict, or a dict
/// that has one under "state_dict" or "model". In the file's order, on the CPU,
/// in the file's dtypes. Nothing in the file is executed.
///
/// float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8, bool.
/// Throws DataError when the file is damaged, or is not such a dict (a whole
/// module, TorchScript); ConfigError for what torch.save does not write and could take
/// any amount of memory: compressed records, records that lie over each other, a pickle
/// of more than 64 MiB or 10 million values.
std::vector<NamedTensor> read_torch_file(const std::string& path);

/// Writes a dict of tensors that torch.load(path, weights_only=True) reads and
/// load_state_dict(strict=True) accepts, in the tensors' dtypes.
///
/// Replaces `path` in one step (files.h). Throws DataError.
void write_torch_file(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace tandem

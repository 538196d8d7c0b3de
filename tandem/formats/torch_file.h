#pragma once

#include <string>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/formats/pickle.h"
#include "tandem/formats/torch_zip.h"

namespace tandem {

/// Reads the tensors of a file of Python's torch.save: a state dict, or a dict with a
/// state dict under "state_dict", "model_state_dict", "model" or "MODEL_STATE". The
/// tensors are in the file's order, on the CPU, in the file's dtypes. No code in the
/// file is executed.
///
/// Dtypes: float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8, bool.
/// Throws DataError if the file is damaged, or if it contains a whole module or
/// TorchScript instead of such a dict. Throws ConfigError for content that torch.save
/// never writes and that could exhaust the memory. Examples are compressed records,
/// overlapping records, and a pickle of more than 64 MiB or `most_values` values.
std::vector<NamedTensor> read_torch_file(
    const FilePart& file, size_t most_values = Pickle::kMostValues);

/// Writes a state dict with the tensors' dtypes. Python's torch.load(path,
/// weights_only=True) can read it, and load_state_dict(strict=True) accepts the result.
///
/// Replaces `path` atomically (files.h). Throws DataError if the file cannot be
/// written.
void write_torch_file(const std::string& path, const std::vector<NamedTensor>& tensors);

/// Maximum number of dimensions of a tensor in a file.
constexpr size_t kMostDims = 64;

/// Returns whether every element of a strided tensor is in a storage of `storage_numel`
/// elements. Sizes, strides and the offset count elements. Also returns false for
/// negative numbers, for more than kMostDims dimensions, and if the number of elements
/// overflows 64 bits.
bool is_inside(
    int64_t storage_numel, int64_t offset, const std::vector<int64_t>& sizes,
    const std::vector<int64_t>& strides);

}  // namespace tandem

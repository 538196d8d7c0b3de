#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// The index of a model in several safetensors files, as Hugging Face writes it: JSON
// with "weight_map", the file of each tensor, and "metadata" with "total_size", the
// bytes of all tensors.

/// Names of tensors and of their files, in the order of the index.
using ShardIndex = std::vector<std::pair<std::string, std::string>>;

/// Returns whether a file is an index, by its name, such as
/// "model.safetensors.index.json".
bool is_shard_index(const std::string& path);

/// Parses the text of an index. `path` is the name of the file in errors. Throws
/// DataError if it is damaged, or if it names a file in another folder.
ShardIndex parse_shard_index(const std::string& text, const std::string& path);

/// Returns the text of an index.
std::string shard_index_text(const ShardIndex& index, uint64_t total_bytes);

}  // namespace tandem

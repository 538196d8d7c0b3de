#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// Content of a safetensors file: named tensors and a map of texts.
struct SafetensorsFile {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Writes a safetensors file (https://github.com/huggingface/safetensors) and returns
/// its hash. The format is: 8 bytes with the length of the header, little-endian; a
/// JSON header with dtype, shape and offsets for each tensor; the tensors' bytes.
/// Python's safetensors.torch.load_file reads it.
///
/// Replaces `path` atomically (files.h). Adds the metadata entry "sha256": the hash of
/// names, dtypes, shapes, values and the other metadata. The hash does not depend on
/// the order of the tensors in the file. Dtypes: float32, float64, float16, bfloat16,
/// int64, int32, int16, int8, uint8, bool. Throws DataError.
std::string write_safetensors(const std::string& path, const SafetensorsFile& file);

/// Returns the bytes that write_safetensors() would write.
std::string safetensors_bytes(const SafetensorsFile& file);

/// Returns the bytes of a file without the metadata entry "sha256", for callers that
/// add the hash later.
std::string unhashed_safetensors_bytes(const SafetensorsFile& file);

/// Returns the hash that write_safetensors() would write.
std::string safetensors_hash(const SafetensorsFile& file);

/// Reads a file. Accepts a file without a hash, such as a file from another program.
///
/// Throws DataError with the path and the first error: the file is too short, the
/// header is not JSON or has a name twice, a dtype is unknown, sizes do not match the
/// shape or the file, tensors overlap or have gaps, or the hash is wrong.
SafetensorsFile read_safetensors(const std::string& path);

/// Parses the bytes of a file. `path` is the name of the file in errors. The tensors
/// own their memory.
SafetensorsFile parse_safetensors(const std::string& bytes, const std::string& path);

/// Returns whether `file`, the result of read_safetensors(), has a hash. Files from
/// other programs have none.
bool has_hash(const SafetensorsFile& file);

/// Returns the hash of `file`, the result of read_safetensors(), which has compared the
/// hash with the content. Throws DataError if the hash is missing, so call it only for
/// files that always have a hash.
const std::string& stored_hash(const SafetensorsFile& file, const std::string& path);

}  // namespace tandem

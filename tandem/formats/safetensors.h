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
/// its hash. The file contains the length of the header (8 bytes, little-endian), the
/// header, and the tensors' bytes. The header is JSON with dtype, shape and offsets of
/// each tensor. Python's safetensors.torch.load_file reads it.
///
/// Replaces `path` atomically (files.h). Adds the metadata entry "sha256": the hash of
/// names, dtypes, shapes, values and the other metadata. The hash does not depend on
/// the order of the tensors in the file. Supported dtypes: float32, float64, float16,
/// bfloat16, int64, int32, int16, int8, uint8, bool. Throws DataError if the file
/// cannot be written.
std::string write_safetensors(const std::string& path, const SafetensorsFile& file);

/// Returns the bytes of a file without the metadata entry "sha256", for callers that
/// add the entry later.
std::string unhashed_safetensors_bytes(const SafetensorsFile& file);

/// Returns the hash that write_safetensors() would write.
std::string safetensors_hash(const SafetensorsFile& file);

/// Reads a file and checks its hash. Also accepts a file without a hash, because other
/// programs write none.
///
/// If the file is missing or damaged, throws DataError with the path and the first
/// error. A file is damaged if it is too short, if the header is not JSON or has a name
/// twice, or if a dtype is unknown. It is also damaged if sizes do not match the shape
/// or the file, if tensors overlap or have gaps, or if the hash is wrong.
SafetensorsFile read_safetensors(const std::string& path);

/// Parses the bytes of a file. `path` is the name of the file in errors. The tensors
/// own their memory.
SafetensorsFile parse_safetensors(const std::string& bytes, const std::string& path);

/// Returns the hash in the metadata of a file, the result of read_safetensors(), which
/// has already checked the hash. Throws DataError if the hash is missing, because files
/// of other programs have none. `path` is the name of the file in the error.
const std::string& stored_hash(
    const std::map<std::string, std::string>& metadata, const std::string& path);

}  // namespace tandem

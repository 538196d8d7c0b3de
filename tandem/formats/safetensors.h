#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// A safetensors file: named tensors and a map of texts.
struct SafetensorsFile {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// The format (https://github.com/huggingface/safetensors): 8 bytes with the length of
/// the header, little-endian; a JSON header with dtype, shape and offsets per tensor;
/// the tensors' bytes. Readable by Python's safetensors.torch.load_file.
///
/// Replaces `path` in one step (files.h). Adds the metadata "sha256", the hash of
/// names, shapes, values and the other metadata, whatever their order in the file.
/// float32, float64, float16, bfloat16, int64, int32, uint8, bool. Returns the hash.
/// Throws DataError.
std::string write_safetensors(const std::string& path, const SafetensorsFile& file);

/// What write_safetensors() writes.
std::string safetensors_bytes(const SafetensorsFile& file);

/// The same without its hash, as a user's file: for who adds that later.
std::string unhashed_safetensors_bytes(const SafetensorsFile& file);

/// The hash that it writes.
std::string safetensors_hash(const SafetensorsFile& file);

/// Throws DataError that names the file and the first thing wrong with it: too
/// short, a header that is not JSON or names something twice, an unknown dtype,
/// sizes that do not match the shape or the file, tensors that overlap or leave
/// bytes between them, a hash that differs. A user's file has no hash.
SafetensorsFile read_safetensors(const std::string& path);

/// The same for a file's bytes; `path` is for the messages. The tensors own
/// their memory.
SafetensorsFile parse_safetensors(const std::string& bytes, const std::string& path);

/// Returns whether a file that was read has a hash. Only tandem's files have a hash.
bool has_hash(const SafetensorsFile& file);

/// The hash of a file that was read; reading has compared it with the content. Throws
/// DataError where it is missing, so it is for files that always have one.
const std::string& stored_hash(const SafetensorsFile& file, const std::string& path);

}  // namespace tandem

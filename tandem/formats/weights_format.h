#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem {

/// Formats of files with weights.
enum class WeightsFormat {
  // A safetensors file (safetensors.h).
  safetensors,
  // A zip archive, as torch.save writes since PyTorch 1.6 (torch_file.h).
  zip,
  // A file of an older torch.save: a pickle that begins with a magic number, or a tar
  // archive.
  legacy_torch,
  unknown,
};

/// Number of bytes at the start of a file that determine its format.
constexpr size_t kWeightsStart = 512;

/// Returns the format of a file that begins with `start`: its first kWeightsStart
/// bytes, or all bytes of a shorter file. Checks only content that every file of a
/// format has, and that no file of another format has. A safetensors file may begin
/// with any byte, so the first byte is not sufficient. The format's reader checks the
/// rest.
WeightsFormat weights_format(std::string_view start, uint64_t file_size);

}  // namespace tandem

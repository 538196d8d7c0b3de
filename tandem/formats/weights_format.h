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
  // A file that torch.save wrote before PyTorch 1.6: a pickle that begins with a magic
  // number, or a tar archive.
  legacy_torch,
  unknown,
};

/// Number of bytes at the start of a file that determine its format.
constexpr size_t kWeightsStart = 512;

/// Returns the format of a file. `start` has the first kWeightsStart bytes of the file,
/// or all bytes of a shorter file. Checks only the bytes that distinguish the formats;
/// the reader of the format checks the rest. The first byte is not sufficient, because
/// a safetensors file may begin with any byte.
WeightsFormat weights_format(std::string_view start, uint64_t file_size);

}  // namespace tandem

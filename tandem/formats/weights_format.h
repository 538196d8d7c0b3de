#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem {

/// Formats of files with weights.
enum class WeightsFormat {
  // safetensors.h.
  safetensors,
  // A zip archive, as torch.save writes since PyTorch 1.6 (torch_file.h).
  zip,
  // Older files of torch.save: a pickle that begins with a magic number, and before
  // that a tar archive.
  legacy_torch,
  unknown,
};

/// Number of bytes at a file's start that determine its format. A shorter file is given
/// whole.
constexpr size_t kWeightsStart = 512;

/// Returns a file's format, by content that every file of that format has and no file
/// of another format. A name or a single byte proves nothing, since a safetensors file
/// may begin with any byte. The format's reader checks the rest.
WeightsFormat weights_format(std::string_view start, uint64_t file_size);

}  // namespace tandem

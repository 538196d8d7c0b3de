#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem {

/// What a file of weights can be.
enum class WeightsFormat {
  // safetensors.h.
  safetensors,
  // A zip archive, as torch.save writes since PyTorch 1.6 (torch_file.h).
  zip,
  // What torch.save wrote before: a pickle that begins with a magic number, and still
  // earlier a tar archive.
  legacy_torch,
  unknown,
};

/// This many bytes from its start tell a file's format; a shorter file gives all it
/// has.
constexpr size_t kWeightsStart = 512;

/// Tells a file's format by what every file of that format contains and no file of
/// another can. A name or a single byte says nothing, since a safetensors file may
/// begin with any byte. Whether the rest is intact is for the format's reader to find
/// out.
WeightsFormat weights_format(std::string_view start, uint64_t file_size);

}  // namespace tandem

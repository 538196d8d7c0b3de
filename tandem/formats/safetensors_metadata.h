#pragma once

#include <map>
#include <string>

namespace tandem {

/// Returns the metadata of a safetensors file (safetensors.h). Reads only the header,
/// so hashes are not checked. Returns an empty map if the file is missing or damaged.
/// This header does not depend on LibTorch.
std::map<std::string, std::string> safetensors_metadata(const std::string& path);

}  // namespace tandem

#include "tandem/formats/safetensors_metadata.h"

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tandem {

namespace {

constexpr uint64_t kMostMetadataBytes = 100u << 20;

}  // namespace

std::map<std::string, std::string> safetensors_metadata(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof(length));
  if (!file || length > kMostMetadataBytes) {
    return {};
  }
  std::string text(length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(length));
  if (!file) {
    return {};
  }
  try {
    return nlohmann::json::parse(text)
        .at("__metadata__")
        .get<std::map<std::string, std::string>>();
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

}  // namespace tandem

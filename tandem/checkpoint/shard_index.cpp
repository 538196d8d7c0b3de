#include "tandem/checkpoint/shard_index.h"

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {
constexpr const char* kWeightMap = "weight_map";
}  // namespace

bool is_shard_index(const std::string& path) {
  return ends_with(path, ".safetensors.index.json");
}

ShardIndex parse_shard_index(const std::string& text, const std::string& path) {
  const auto fail = [&](const std::string& what) {
    throw DataError(
        "[checkpoint] '" + path + "' " + what +
        ", expected the index of a model in several files; use another checkpoint");
  };
  ShardIndex index;
  try {
    const auto json = nlohmann::ordered_json::parse(text);
    for (const auto& [name, file] : json.at(kWeightMap).items()) {
      index.emplace_back(name, file.get<std::string>());
      if (index.back().second.find('/') != std::string::npos) {
        fail("names the file '" + index.back().second + "'");
      }
    }
  } catch (const nlohmann::json::exception& error) {
    fail("is damaged (" + first_line(error) + ")");
  }
  if (index.empty()) {
    fail("names no tensor");
  }
  return index;
}

std::string shard_index_text(const ShardIndex& index, uint64_t total_bytes) {
  nlohmann::ordered_json json;
  json["metadata"]["total_size"] = total_bytes;
  for (const auto& [name, file] : index) {
    json[kWeightMap][name] = file;
  }
  return json.dump(2) + "\n";
}

}  // namespace tandem

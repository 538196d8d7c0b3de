#include "tandem/formats/safetensors.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/formats/dtypes.h"
#include "tandem/formats/safetensors_reader.h"

namespace tandem {

namespace {

using nlohmann::ordered_json;

std::string dtype_name(at::ScalarType dtype) {
  const FileDtype* row = find_dtype(dtype);
  TANDEM_CHECK(row != nullptr, "safetensors has no such dtype");
  return std::string(row->safetensors);
}

// Returns the hash of a content whose tensors are contiguous and in main memory.
std::string hash_of(const SafetensorsFile& file) {
  SafetensorsHeader header;
  header.metadata = file.metadata;
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : file.tensors) {
    header.tensors.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
    tensors[name] = tensor;
  }
  return safetensors_hash(
      header, [&](const SafetensorsEntry& entry) { return tensors.at(entry.name); });
}

std::string header_of(const SafetensorsFile& file) {
  ordered_json header;
  header["__metadata__"] = file.metadata;
  size_t offset = 0;
  for (const auto& [name, tensor] : file.tensors) {
    const size_t end = offset + tensor.nbytes();
    header[name] = {
        {"dtype", dtype_name(tensor.scalar_type())},
        {"shape", tensor.sizes().vec()},
        {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

SafetensorsFile contiguous(SafetensorsFile file) {
  for (auto& entry : file.tensors) {
    entry.tensor = entry.tensor.detach().cpu().contiguous();
  }
  return file;
}

SafetensorsFile ready_to_write(SafetensorsFile content) {
  auto file = contiguous(std::move(content));
  file.metadata[kSafetensorsHash] = hash_of(file);
  return file;
}

}  // namespace

std::string safetensors_hash(const SafetensorsFile& file) {
  return ready_to_write(file).metadata.at(kSafetensorsHash);
}

std::string unhashed_safetensors_bytes(const SafetensorsFile& content) {
  const SafetensorsFile file = contiguous(content);
  const std::string header = header_of(file);
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += header;
  for (const auto& [name, tensor] : file.tensors) {
    bytes.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  }
  return bytes;
}

std::string write_safetensors(const std::string& path, const SafetensorsFile& content) {
  const SafetensorsFile file = ready_to_write(content);
  const std::string header = header_of(file);
  const uint64_t length = header.size();
  replace_file(path, [&](int fd) {
    write_all(fd, &length, sizeof(length), path);
    write_all(fd, header.data(), header.size(), path);
    for (const auto& [name, tensor] : file.tensors) {
      write_all(fd, tensor.data_ptr(), tensor.nbytes(), path);
    }
  });
  return file.metadata.at(kSafetensorsHash);
}

SafetensorsFile read_safetensors(const std::string& path) {
  return parse_safetensors(read_file(path), path);
}

SafetensorsFile parse_safetensors(const std::string& bytes, const std::string& path) {
  return SafetensorsReader(bytes, path).read_all();
}

const std::string& stored_hash(
    const std::map<std::string, std::string>& metadata, const std::string& path) {
  const auto found = metadata.find(kSafetensorsHash);
  if (found == metadata.end()) {
    fail_safetensors_hash(path, "its hash is missing");
  }
  return found->second;
}

}  // namespace tandem

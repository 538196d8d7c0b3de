#include "tandem/train/safetensors.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/sha256.h"

namespace tandem {

namespace {

using nlohmann::ordered_json;

struct DtypeName {
  at::ScalarType dtype;
  const char* name;
};
const DtypeName kDtypes[] = {
    {at::kFloat, "F32"},     {at::kDouble, "F64"}, {at::kHalf, "F16"},
    {at::kBFloat16, "BF16"}, {at::kLong, "I64"},   {at::kInt, "I32"},
    {at::kByte, "U8"},       {at::kBool, "BOOL"},
};

constexpr uint64_t kMostHeaderBytes = 100u << 20;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw DataError("[checkpoint] '" + path + "' " + what + "; use another checkpoint");
}

const char* dtype_name(at::ScalarType dtype) {
  for (const auto& entry : kDtypes) {
    if (entry.dtype == dtype) {
      return entry.name;
    }
  }
  TANDEM_CHECK(false, "safetensors has no such dtype");
}

std::string hash_of(const char* data, size_t size) {
  Sha256 hash;
  hash.update(data, size);
  return hash.hex_digest();
}

std::string header_of(
    const SafetensorsFile& file, const std::vector<at::Tensor>& values,
    const std::string& sha256) {
  ordered_json header;
  header["__metadata__"] = file.metadata;
  header["__metadata__"]["sha256"] = sha256;
  size_t offset = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t end = offset + values[i].nbytes();
    header[file.tensors[i].name] = {
        {"dtype", dtype_name(values[i].scalar_type())},
        {"shape", values[i].sizes().vec()},
        {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

at::ScalarType dtype_of(const std::string& path, const std::string& name) {
  for (const auto& entry : kDtypes) {
    if (name == entry.name) {
      return entry.dtype;
    }
  }
  fail(path, "has a tensor of unknown dtype " + name);
}

at::Tensor read_tensor(
    const std::string& path, const std::string& name, const ordered_json& entry,
    const char* data, size_t data_size) {
  const auto dtype = dtype_of(path, entry.at("dtype").get<std::string>());
  const auto shape = entry.at("shape").get<std::vector<int64_t>>();
  const auto begin = entry.at("data_offsets").at(0).get<size_t>();
  const auto end = entry.at("data_offsets").at(1).get<size_t>();
  size_t wanted = c10::elementSize(dtype);
  for (const int64_t dim : shape) {
    if (dim < 0 || (dim > 0 && wanted > data_size / static_cast<size_t>(dim))) {
      fail(path, "has sizes in its header that do not fit tensor '" + name + "'");
    }
    wanted *= static_cast<size_t>(dim);
  }
  if (begin > end || end > data_size || end - begin != wanted) {
    fail(path, "has sizes in its header that do not fit tensor '" + name + "'");
  }
  auto tensor = at::empty(shape, dtype);
  if (wanted > 0) {
    std::memcpy(tensor.data_ptr(), data + begin, wanted);
  }
  return tensor;
}

}  // namespace

void write_safetensors(const std::string& path, const SafetensorsFile& file) {
  std::vector<at::Tensor> values;
  Sha256 hash;
  for (const auto& entry : file.tensors) {
    values.push_back(entry.tensor.detach().cpu().contiguous());
    hash.update(values.back().data_ptr(), values.back().nbytes());
  }
  const std::string header = header_of(file, values, hash.hex_digest());
  const uint64_t length = header.size();
  replace_file(path, [&](int fd) {
    write_all(fd, &length, sizeof(length), path);
    write_all(fd, header.data(), header.size(), path);
    for (const auto& value : values) {
      write_all(fd, value.data_ptr(), value.nbytes(), path);
    }
  });
}

SafetensorsFile read_safetensors(const std::string& path) {
  const std::string bytes = read_file(path);
  uint64_t length = 0;
  if (bytes.size() < sizeof(length)) {
    fail(path, "is too short for a safetensors file");
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kMostHeaderBytes || length > bytes.size() - sizeof(length)) {
    fail(path, "ends inside its header, or is not a safetensors file");
  }
  const char* data = bytes.data() + sizeof(length) + length;
  const size_t data_size = bytes.size() - sizeof(length) - length;
  SafetensorsFile file;
  try {
    const auto header = ordered_json::parse(bytes.substr(sizeof(length), length));
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        file.metadata = entry.get<std::map<std::string, std::string>>();
      } else {
        file.tensors.push_back({name, read_tensor(path, name, entry, data, data_size)});
      }
    }
  } catch (const nlohmann::json::exception& error) {
    fail(path, "has a damaged header (" + first_line(error) + ")");
  }
  const auto stored = file.metadata.find("sha256");
  if (stored != file.metadata.end() && stored->second != hash_of(data, data_size)) {
    fail(path, "is damaged: its contents do not match its hash");
  }
  return file;
}

}  // namespace tandem

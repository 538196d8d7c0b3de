#include "tandem/formats/safetensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/sha256.h"
#include "tandem/formats/dtypes.h"

namespace tandem {

namespace {

using nlohmann::ordered_json;

constexpr const char* kHashKey = "sha256";
constexpr uint64_t kMostHeaderBytes = 100u << 20;

[[noreturn]] void fail_safetensors(const std::string& path, const std::string& what) {
  throw DataError("[checkpoint] '" + path + "' " + what + "; use another checkpoint");
}

[[noreturn]] void fail_hash(const std::string& path, const std::string& why) {
  throw DataError(
      "[checkpoint] '" + path + "' is damaged: " + why +
      "; use another checkpoint, or, if you changed it yourself, save its tensors "
      "without metadata and start from them with --init");
}

std::string dtype_name(at::ScalarType dtype) {
  const FileDtype* row = find_dtype(dtype);
  TANDEM_CHECK(row != nullptr, "safetensors has no such dtype");
  return std::string(row->safetensors);
}

// Returns the hash of the file's content, which does not depend on the format of its
// header or the order of its tensors.
std::string hash_of(const SafetensorsFile& file) {
  Sha256 hash;
  const auto add = [&](const std::string& text) {
    hash.update(text.data(), text.size() + 1);
  };
  for (const auto& [key, value] : file.metadata) {
    if (key != kHashKey) {
      add(key);
      add(value);
    }
  }
  std::map<std::string, at::Tensor> sorted;
  for (const auto& [name, tensor] : file.tensors) {
    sorted[name] = tensor;
  }
  for (const auto& [name, tensor] : sorted) {
    add(name);
    add(dtype_name(tensor.scalar_type()));
    for (const int64_t dim : tensor.sizes()) {
      add(std::to_string(dim));
    }
    hash.update(tensor.data_ptr(), tensor.nbytes());
  }
  return hash.hex_digest();
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

at::ScalarType dtype_of(const std::string& path, const std::string& name) {
  const FileDtype* row = find_dtype(&FileDtype::safetensors, name);
  if (row == nullptr) {
    fail_safetensors(path, "has a tensor of unknown dtype " + name);
  }
  return row->dtype;
}

// Returns a whole number that is not negative. Without the check the JSON library would
// also convert -1, 1.5 or true.
uint64_t whole_number(const std::string& path, const ordered_json& value) {
  if (!value.is_number_unsigned()) {
    fail_safetensors(path, "has " + value.dump().substr(0, 40) + " in place of a size");
  }
  return value.get<uint64_t>();
}

// Range of a tensor's bytes, counted from the end of the header.
struct Range {
  uint64_t begin;
  uint64_t end;
};

Range read_range(
    const std::string& path, const std::string& name, const ordered_json& offsets) {
  const Range range{
      whole_number(path, offsets.at(0)), whole_number(path, offsets.at(1))};
  if (offsets.size() != 2 || range.begin > range.end) {
    fail_safetensors(path, "has impossible offsets for tensor '" + name + "'");
  }
  return range;
}

at::Tensor read_tensor(
    const std::string& path, const std::string& name, const ordered_json& entry,
    std::string_view data, const Range& range) {
  const auto dtype = dtype_of(path, entry.at("dtype").get<std::string>());
  // Limit of a tensor's size, so that strides fit in 64 bits, even with a dimension of
  // 0.
  constexpr uint64_t kMostBytes = uint64_t{1} << 62;
  uint64_t extent = c10::elementSize(dtype);
  bool empty = false;
  std::vector<int64_t> shape;
  // get_ref() throws if the value is not an array. A loop over the value itself would
  // treat such a value as an array with one element.
  for (const auto& value : entry.at("shape").get_ref<const ordered_json::array_t&>()) {
    const uint64_t dim = whole_number(path, value);
    const uint64_t step = std::max<uint64_t>(dim, 1);
    if (extent > kMostBytes / step) {
      fail_safetensors(
          path, "has sizes in its header that do not fit tensor '" + name + "'");
    }
    extent *= step;
    empty = empty || dim == 0;
    shape.push_back(static_cast<int64_t>(dim));
  }
  const uint64_t wanted = empty ? 0 : extent;
  if (range.end > data.size() || range.end - range.begin != wanted) {
    fail_safetensors(
        path, "has sizes in its header that do not fit tensor '" + name + "'");
  }
  auto tensor = at::empty(shape, dtype);
  if (wanted > 0) {
    std::memcpy(tensor.data_ptr(), data.data() + range.begin, wanted);
  }
  return tensor;
}

// Throws unless every byte belongs to exactly one tensor.
void check_cover(const std::string& path, std::vector<Range> ranges, uint64_t size) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = 0;
  for (const auto& range : ranges) {
    if (range.begin != covered) {
      fail_safetensors(path, "has tensors that overlap, or bytes between them");
    }
    covered = range.end;
  }
  if (covered != size) {
    fail_safetensors(path, "has bytes after its last tensor");
  }
}

// Parses the header. Rejects a name that occurs twice, of which the JSON library would
// use the second value. Also rejects values that are nested deeper than in the format.
ordered_json parse_header(const std::string& path, std::string_view text) {
  constexpr int kMostDepth = 3;
  std::set<std::pair<int, std::string>> names;
  const auto check = [&](int depth, ordered_json::parse_event_t event,
                         const ordered_json& value) {
    using Event = ordered_json::parse_event_t;
    if (depth > kMostDepth) {
      fail_safetensors(path, "has values nested too deeply in its header");
    }
    if (event == Event::object_start) {
      // Removes the names of the previous object, because this object may use the same
      // names.
      names.erase(names.lower_bound({depth + 1, ""}), names.end());
    }
    if (event == Event::key && !names.emplace(depth, value.get<std::string>()).second) {
      fail_safetensors(
          path, "names '" + value.get<std::string>() + "' twice in its header");
    }
    return true;
  };
  // Rejects zero bytes, because the JSON library would ignore the text after a zero
  // byte.
  if (text.find('\0') != std::string_view::npos) {
    fail_safetensors(path, "has a damaged header (a zero byte)");
  }
  return ordered_json::parse(text.begin(), text.end(), check);
}

SafetensorsFile contiguous(SafetensorsFile file) {
  for (auto& entry : file.tensors) {
    entry.tensor = entry.tensor.detach().cpu().contiguous();
  }
  return file;
}

SafetensorsFile ready_to_write(SafetensorsFile content) {
  auto file = contiguous(std::move(content));
  file.metadata[kHashKey] = hash_of(file);
  return file;
}

}  // namespace

std::string safetensors_hash(const SafetensorsFile& file) {
  return ready_to_write(file).metadata.at(kHashKey);
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
  return file.metadata.at(kHashKey);
}

SafetensorsFile read_safetensors(const std::string& path) {
  return parse_safetensors(read_file(path), path);
}

SafetensorsFile parse_safetensors(const std::string& bytes, const std::string& path) {
  uint64_t length = 0;
  if (bytes.size() < sizeof(length)) {
    fail_safetensors(path, "is too short for a safetensors file");
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > kMostHeaderBytes || length > bytes.size() - sizeof(length)) {
    fail_safetensors(path, "ends inside its header, or is not a safetensors file");
  }
  const std::string_view header =
      std::string_view(bytes).substr(sizeof(length), length);
  const std::string_view data = std::string_view(bytes).substr(sizeof(length) + length);
  SafetensorsFile file;
  std::vector<Range> ranges;
  try {
    const auto entries = parse_header(path, header);
    for (const auto& [name, entry] : entries.items()) {
      if (name == "__metadata__") {
        file.metadata = entry.get<std::map<std::string, std::string>>();
      } else {
        ranges.push_back(read_range(path, name, entry.at("data_offsets")));
        file.tensors.push_back(
            {name, read_tensor(path, name, entry, data, ranges.back())});
      }
    }
  } catch (const nlohmann::json::exception& error) {
    fail_safetensors(path, "has a damaged header (" + first_line(error) + ")");
  }
  check_cover(path, ranges, data.size());
  const auto stored = file.metadata.find(kHashKey);
  if (stored != file.metadata.end() && stored->second != hash_of(file)) {
    fail_hash(path, "its contents do not match its hash");
  }
  return file;
}

bool has_hash(const SafetensorsFile& file) {
  return file.metadata.count(kHashKey) > 0;
}

const std::string& stored_hash(const SafetensorsFile& file, const std::string& path) {
  const auto found = file.metadata.find(kHashKey);
  if (found == file.metadata.end()) {
    fail_hash(path, "its hash is missing");
  }
  return found->second;
}

}  // namespace tandem

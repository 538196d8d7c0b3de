#include "tandem/formats/safetensors_reader.h"

#include <ATen/ops/empty.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/sha256.h"
#include "tandem/formats/dtypes.h"

namespace tandem {

namespace {

using nlohmann::ordered_json;

constexpr uint64_t kMostHeaderBytes = 100u << 20;

[[noreturn]] void fail_safetensors(const std::string& path, const std::string& what) {
  throw DataError("[checkpoint] '" + path + "' " + what + "; use another checkpoint");
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

SafetensorsEntry read_entry(
    const std::string& path, const std::string& name, const ordered_json& json,
    uint64_t data_bytes) {
  SafetensorsEntry entry;
  entry.name = name;
  const ordered_json& offsets = json.at("data_offsets");
  entry.begin = whole_number(path, offsets.at(0));
  entry.end = whole_number(path, offsets.at(1));
  if (offsets.size() != 2 || entry.begin > entry.end) {
    fail_safetensors(path, "has impossible offsets for tensor '" + name + "'");
  }
  const auto check_size = [&](bool fits) {
    if (!fits) {
      fail_safetensors(
          path, "has sizes in its header that do not fit tensor '" + name + "'");
    }
  };
  entry.dtype = dtype_of(path, json.at("dtype").get<std::string>());
  // Limit of a tensor's size, so that strides fit in 64 bits, even with a dimension of
  // 0.
  constexpr uint64_t kMostBytes = uint64_t{1} << 62;
  uint64_t extent = c10::elementSize(entry.dtype);
  bool empty = false;
  // get_ref() throws if the value is not an array. A loop over the value itself would
  // treat such a value as an array with one element.
  for (const auto& value : json.at("shape").get_ref<const ordered_json::array_t&>()) {
    const uint64_t dim = whole_number(path, value);
    const uint64_t step = std::max<uint64_t>(dim, 1);
    check_size(extent <= kMostBytes / step);
    extent *= step;
    empty = empty || dim == 0;
    entry.shape.push_back(static_cast<int64_t>(dim));
  }
  check_size(
      entry.end <= data_bytes && entry.end - entry.begin == (empty ? 0 : extent));
  return entry;
}

// Throws unless every byte belongs to exactly one tensor.
void check_cover(
    const std::string& path, const std::vector<SafetensorsEntry>& tensors,
    uint64_t size) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& entry : tensors) {
    ranges.emplace_back(entry.begin, entry.end);
  }
  std::sort(ranges.begin(), ranges.end());
  uint64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered) {
      fail_safetensors(path, "has tensors that overlap, or bytes between them");
    }
    covered = end;
  }
  if (covered != size) {
    fail_safetensors(path, "has bytes after its last tensor");
  }
}

// Parses the header. Rejects a name that occurs twice, of which the JSON library would
// use the second value. Also rejects values that are nested deeper than in the format.
ordered_json parse_json(const std::string& path, std::string_view text) {
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

// Copies bytes of an open file. A file that has become shorter is damaged.
void read_at(int fd, const std::string& path, uint64_t offset, void* to, size_t size) {
  auto* next = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = pread(fd, next, size, static_cast<off_t>(offset));
    if (got == 0) {
      fail_safetensors(path, "has become shorter");
    }
    if (got < 0 && errno != EINTR) {
      fail_on_file("read", path);
    }
    const auto count = static_cast<size_t>(std::max<ssize_t>(got, 0));
    next += count;
    offset += count;
    size -= count;
  }
}

}  // namespace

void fail_safetensors_hash(const std::string& path, const std::string& why) {
  throw DataError(
      "[checkpoint] '" + path + "' is damaged: " + why +
      "; use another checkpoint, or, if you changed it yourself, save its tensors "
      "without metadata and start from them with --init");
}

SafetensorsHeader parse_safetensors_header(
    std::string_view json, uint64_t data_bytes, const std::string& path) {
  SafetensorsHeader header;
  try {
    const auto entries = parse_json(path, json);
    for (const auto& [name, entry] : entries.items()) {
      if (name == "__metadata__") {
        header.metadata = entry.get<std::map<std::string, std::string>>();
      } else {
        header.tensors.push_back(read_entry(path, name, entry, data_bytes));
      }
    }
  } catch (const nlohmann::json::exception& error) {
    fail_safetensors(path, "has a damaged header (" + first_line(error) + ")");
  }
  check_cover(path, header.tensors, data_bytes);
  return header;
}

std::string safetensors_hash(
    const SafetensorsHeader& header,
    const std::function<at::Tensor(const SafetensorsEntry&)>& tensor) {
  Sha256 hash;
  const auto add = [&](const std::string& text) {
    hash.update(text.data(), text.size() + 1);
  };
  for (const auto& [key, value] : header.metadata) {
    if (key != kSafetensorsHash) {
      add(key);
      add(value);
    }
  }
  std::map<std::string, const SafetensorsEntry*> sorted;
  for (const auto& entry : header.tensors) {
    sorted[entry.name] = &entry;
  }
  for (const auto& [name, entry] : sorted) {
    add(name);
    const FileDtype* dtype = find_dtype(entry->dtype);
    TANDEM_CHECK(dtype != nullptr, "safetensors has no such dtype");
    add(std::string(dtype->safetensors));
    for (const int64_t dim : entry->shape) {
      add(std::to_string(dim));
    }
    const at::Tensor values = tensor(*entry);
    hash.update(values.data_ptr(), values.nbytes());
  }
  return hash.hex_digest();
}

SafetensorsReader::SafetensorsReader(Descriptor file, std::string path)
    : path_(std::move(path)) {
  struct stat info {};
  if (fstat(file.fd(), &info) != 0) {
    fail_on_file("read", path_);
  }
  // Shared, because a std::function can be copied.
  const auto owner = std::make_shared<Descriptor>(std::move(file));
  read_ = [owner, name = path_](uint64_t offset, void* to, size_t size) {
    read_at(owner->fd(), name, offset, to, size);
  };
  read_header(static_cast<uint64_t>(info.st_size));
}

SafetensorsReader::SafetensorsReader(std::string_view bytes, std::string path)
    : path_(std::move(path)), read_([bytes](uint64_t offset, void* to, size_t size) {
        std::memcpy(to, bytes.data() + offset, size);
      }) {
  read_header(bytes.size());
}

void SafetensorsReader::read_header(uint64_t size) {
  uint64_t length = 0;
  if (size < sizeof(length)) {
    fail_safetensors(path_, "is too short for a safetensors file");
  }
  read_(0, &length, sizeof(length));
  if (length > kMostHeaderBytes || length > size - sizeof(length)) {
    fail_safetensors(path_, "ends inside its header, or is not a safetensors file");
  }
  json_.resize(length);
  read_(sizeof(length), json_.data(), length);
  data_bytes_ = size - sizeof(length) - length;
  header_ = parse_safetensors_header(json_, data_bytes_, path_);
}

at::Tensor SafetensorsReader::read(const SafetensorsEntry& entry) const {
  auto tensor = at::empty(entry.shape, entry.dtype);
  if (entry.end > entry.begin) {
    read_(
        sizeof(uint64_t) + json_.size() + entry.begin, tensor.data_ptr(),
        entry.end - entry.begin);
  }
  return tensor;
}

SafetensorsFile SafetensorsReader::read_all(bool keeps_tensors) const {
  std::map<std::string, at::Tensor> kept;
  const auto tensor = [&](const SafetensorsEntry& entry) {
    auto values = read(entry);
    if (keeps_tensors) {
      kept[entry.name] = values;
    }
    return values;
  };
  const auto stored = header_.metadata.find(kSafetensorsHash);
  if (stored != header_.metadata.end()) {
    if (stored->second != safetensors_hash(header_, tensor)) {
      fail_safetensors_hash(path_, "its contents do not match its hash");
    }
  } else if (keeps_tensors) {
    std::for_each(header_.tensors.begin(), header_.tensors.end(), tensor);
  }
  SafetensorsFile file;
  file.metadata = header_.metadata;
  if (keeps_tensors) {
    for (const auto& entry : header_.tensors) {
      file.tensors.push_back({entry.name, kept.at(entry.name)});
    }
  }
  return file;
}

}  // namespace tandem

#include "tandem/formats/torch_file.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/formats/dtypes.h"
#include "tandem/formats/torch_zip.h"

namespace tandem {

namespace {

using Kind = PickleValue::Kind;
using caffe2::serialize::PyTorchStreamReader;

constexpr const char* kPickleRecord = "data.pkl";
constexpr const char* kByteOrderRecord = "byteorder";
constexpr const char* kStorageRecords = "data/";
constexpr uint64_t kMostPickleBytes = uint64_t{64} << 20;

[[noreturn]] void fail_torch_file(const std::string& path, const std::string& what) {
  throw DataError(
      "[weights] '" + path + "' " + what +
      "; write it with torch.save(model.state_dict(), path)");
}

// --- reading ---

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw ConfigError(
      "[weights] '" + path + "' " + what +
      ", which torch.save never writes; name another file");
}

// Returns the name of an entry without the archive's name, in lower case, as LibTorch's
// reader compares it.
std::string record_name(const ZipEntry& entry) {
  std::string name = entry.name.substr(entry.name.find('/') + 1);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return name;
}

// Checks sizes before any record is unpacked: a record uses the memory that the
// directory declares, and records may overlap.
void check_records(const FilePart& file) {
  const std::string& path = file.path;
  std::error_code error;
  const uint64_t whole =
      std::min<uint64_t>(std::filesystem::file_size(path, error), file.size);
  uint64_t bytes = 0;
  for (const auto& entry : read_zip_directory(file)) {
    const std::string name = record_name(entry);
    // The sources in a TorchScript archive are compressed. They are not read.
    if (entry.compressed && name.rfind("code/", 0) != 0) {
      refuse(path, "has a compressed record '" + entry.name + "'");
    }
    if (name == kPickleRecord && entry.size > kMostPickleBytes) {
      refuse(
          path, "has a pickle of " + std::to_string(entry.size) +
                    " bytes, expected at most " + std::to_string(kMostPickleBytes));
    }
    if (!entry.compressed && (entry.size > whole || (bytes += entry.size) > whole)) {
      refuse(path, "has records of more bytes than the file");
    }
  }
}

const PickleValue* entry_of(const PickleValue& dict, const std::string& key) {
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    if (dict.items[i]->kind == Kind::text && dict.items[i]->text == key) {
      return dict.items[i + 1];
    }
  }
  return nullptr;
}

bool calls(const PickleValue& value, const std::string& function) {
  return value.kind == Kind::call && value.items[0]->kind == Kind::global &&
         value.items[0]->text == "torch._utils " + function &&
         value.items[1]->kind == Kind::sequence;
}

// Reads a part of a file for LibTorch.
class PartReader : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit PartReader(const FilePart& part)
      : offset_(part.offset), file_(part.path, std::ios::binary | std::ios::ate) {
    const auto end = file_ ? static_cast<uint64_t>(file_.tellg()) : 0;
    size_ = std::min(part.size, end - std::min(end, offset_));
  }

  size_t size() const override {
    return size_;
  }
  size_t read(uint64_t from, void* to, size_t bytes, const char*) const override {
    const uint64_t left = size_ - std::min(size_, from);
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset_ + from));
    file_.read(
        static_cast<char*>(to),
        static_cast<std::streamsize>(std::min<uint64_t>(bytes, left)));
    return static_cast<size_t>(file_.gcount());
  }

 private:
  uint64_t offset_;
  uint64_t size_ = 0;
  mutable std::ifstream file_;
};

class StateReader {
 public:
  StateReader(const FilePart& file, size_t most_values)
      : path_(file.path),
        most_values_(most_values),
        archive_(std::make_shared<PartReader>(file)) {}

  std::vector<NamedTensor> read() {
    if (!archive_.hasRecord(kPickleRecord)) {
      fail_torch_file(path_, "is a zip file, but not from torch.save");
    }
    if (archive_.hasRecord(kByteOrderRecord) && record(kByteOrderRecord) != "little") {
      fail_torch_file(path_, "was written on a machine with another byte order");
    }
    const Pickle pickle(record(kPickleRecord), path_, most_values_);
    const PickleValue& dict = state_dict_in(pickle.root());
    std::vector<NamedTensor> tensors;
    for (size_t i = 0; i < dict.items.size(); i += 2) {
      if (dict.items[i]->kind != Kind::text) {
        fail_torch_file(path_, "has a dict whose keys are not names");
      }
      const std::string& name = dict.items[i]->text;
      tensors.push_back({name, tensor_of(name, *dict.items[i + 1])});
    }
    return tensors;
  }

 private:
  std::string record(const std::string& name) {
    const auto [data, size] = archive_.getRecord(name);
    return std::string(static_cast<const char*>(data.get()), size);
  }

  const PickleValue& state_dict_in(const PickleValue& root) const {
    if (root.kind != Kind::dict) {
      fail_torch_file(
          path_, "does not contain a dict of tensors (perhaps a whole module)");
    }
    for (const char* key : {"state_dict", "model"}) {
      const auto* inner = entry_of(root, key);
      if (inner != nullptr && inner->kind == Kind::dict) {
        return *inner;
      }
    }
    return root;
  }

  at::Tensor tensor_of(const std::string& name, const PickleValue& value) {
    const PickleValue* made = &value;
    // The parameters of torch.export have attributes ("state").
    if ((calls(value, "_rebuild_parameter") ||
         calls(value, "_rebuild_parameter_with_state")) &&
        !value.items[1]->items.empty()) {
      made = value.items[1]->items[0];
    }
    if (!calls(*made, "_rebuild_tensor_v2")) {
      fail_torch_file(path_, "has an entry '" + name + "' that is not a tensor");
    }
    // Arguments of _rebuild_tensor_v2: storage, offset, sizes, strides and others.
    const auto& arguments = made->items[1]->items;
    if (arguments.size() < 4 || arguments[1]->kind != Kind::number) {
      fail_torch_file(path_, "has a damaged tensor '" + name + "'");
    }
    const at::Tensor storage = storage_of(name, *arguments[0]);
    const int64_t offset = arguments[1]->number;
    const auto sizes = numbers_of(name, *arguments[2]);
    const auto strides = numbers_of(name, *arguments[3]);
    if (!is_inside(storage.numel(), offset, sizes, strides)) {
      fail_torch_file(
          path_, "has a tensor '" + name + "' that reaches past its storage");
    }
    return storage.as_strided(sizes, strides, offset);
  }

  std::vector<int64_t> numbers_of(const std::string& name, const PickleValue& value) {
    if (value.items.size() > kMostDims) {
      fail_torch_file(path_, "has a tensor '" + name + "' of too many dimensions");
    }
    std::vector<int64_t> numbers;
    for (const auto* item : value.items) {
      if (item->kind != Kind::number || item->number < 0) {
        fail_torch_file(path_, "has a damaged tensor '" + name + "'");
      }
      numbers.push_back(item->number);
    }
    return numbers;
  }

  // Returns the storage of a tensor. Its id is the tuple ('storage', class, key of the
  // record, device, number of elements).
  at::Tensor storage_of(const std::string& name, const PickleValue& value) {
    if (value.kind != Kind::persistent || value.items[0]->items.size() < 5) {
      fail_torch_file(path_, "has a damaged tensor '" + name + "'");
    }
    const auto& id = value.items[0]->items;
    const std::string& key = id[2]->text;
    const int64_t numel = id[4]->number;
    const auto found = storages_.find(key);
    if (found != storages_.end()) {
      return found->second;
    }
    const auto dtype = dtype_of(name, id[1]->text);
    const auto element_size = static_cast<int64_t>(c10::elementSize(dtype));
    auto [data, bytes] = archive_.getRecord(kStorageRecords + key);
    if (static_cast<int64_t>(bytes) / element_size != numel ||
        static_cast<int64_t>(bytes) % element_size != 0) {
      fail_torch_file(
          path_, "has a tensor '" + name + "' whose storage has another size");
    }
    at::Tensor storage = at::empty({0}, dtype);
    if (numel > 0) {
      const auto holder = std::make_shared<at::DataPtr>(std::move(data));
      storage = at::from_blob(
          holder->get(), {numel}, [holder](void*) {}, dtype);
    }
    return storages_[key] = storage;
  }

  at::ScalarType dtype_of(const std::string& name, const std::string& class_name) {
    constexpr size_t kModule = std::string_view("torch ").size();
    const FileDtype* row =
        class_name.rfind("torch ", 0) == 0
            ? find_dtype(&FileDtype::storage, class_name.substr(kModule))
            : nullptr;
    if (row == nullptr) {
      fail_torch_file(
          path_,
          "has a tensor '" + name + "' of an unknown dtype (" + class_name + ")");
    }
    return row->dtype;
  }

  const std::string& path_;
  const size_t most_values_;
  PyTorchStreamReader archive_;
  std::map<std::string, at::Tensor> storages_;
};

// --- writing ---

// Writer of a state dict's pickle, with the opcodes of pickle.cpp.
class StatePickle {
 public:
  StatePickle() : bytes_("\x80\x02}(") {}

  void add(const std::string& name, const std::string& key, const at::Tensor& tensor) {
    const FileDtype* dtype = find_dtype(tensor.scalar_type());
    TANDEM_CHECK(dtype != nullptr, "torch.save has no storage of this dtype");
    text(name);
    bytes_ += "ctorch._utils\n_rebuild_tensor_v2\n((";
    text("storage");
    bytes_ += fmt::format("ctorch\n{}\n", dtype->storage);
    text(key);
    text("cpu");
    number(tensor.numel());
    bytes_ += "tQ";
    number(0);
    numbers(tensor.sizes());
    numbers(tensor.strides());
    // The last two arguments are requires_grad, which is false, and the backward hooks,
    // which are empty.
    bytes_ +=
        "\x89"
        "ccollections\nOrderedDict\n)RtR";
  }

  std::string finish() {
    return bytes_ + "u.";
  }

 private:
  template <typename T>
  void raw(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  void text(const std::string& value) {
    bytes_ += 'X';
    raw(static_cast<uint32_t>(value.size()));
    bytes_ += value;
  }

  void number(int64_t value) {
    if (value <= std::numeric_limits<int32_t>::max()) {
      bytes_ += 'J';
      raw(static_cast<int32_t>(value));
    } else {
      bytes_ += "\x8a\x08";
      raw(value);
    }
  }

  void numbers(at::IntArrayRef values) {
    bytes_ += '(';
    for (const int64_t value : values) {
      number(value);
    }
    bytes_ += 't';
  }

  std::string bytes_;
};

}  // namespace

std::vector<NamedTensor> read_torch_file(const FilePart& file, size_t most_values) {
  try {
    check_records(file);
    return StateReader(file, most_values).read();
  } catch (const c10::Error& error) {
    fail_torch_file(file.path, "is damaged (" + first_line(error) + ")");
  }
}

std::vector<NamedTensor> read_torch_file(const std::string& path) {
  return read_torch_file(FilePart{path});
}

void write_torch_file(
    const std::string& path, const std::vector<NamedTensor>& tensors) {
  std::vector<ZipRecord> records;
  std::vector<at::Tensor> values;
  StatePickle pickle;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& value =
        values.emplace_back(tensors[i].tensor.detach().cpu().contiguous());
    const std::string key = std::to_string(i);
    pickle.add(tensors[i].name, key, value);
    records.push_back({kStorageRecords + key, value.data_ptr(), value.nbytes()});
  }
  const std::string bytes = pickle.finish();
  records.push_back({kPickleRecord, bytes.data(), bytes.size()});
  write_torch_zip(path, records);
}

}  // namespace tandem

#include "tandem/formats/torch_file.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>

#include "tandem/base/error.h"
#include "tandem/formats/dtypes.h"

namespace tandem {

namespace {

using Kind = PickleValue::Kind;

constexpr const char* kPickleRecord = "data.pkl";
constexpr const char* kByteOrderRecord = "byteorder";
constexpr const char* kStorageRecords = "data/";
constexpr uint64_t kMostPickleBytes = uint64_t{64} << 20;

constexpr const char* kWithTorchSave =
    "write it with torch.save(model.state_dict(), path)";

[[noreturn]] void fail_torch_file(const std::string& path, const std::string& what) {
  throw DataError("[weights] '" + path + "' " + what + "; " + kWithTorchSave);
}

// --- reading ---

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

class StateReader {
 public:
  StateReader(const FilePart& file, size_t most_values)
      : path_(file.path),
        most_values_(most_values),
        archive_(file, "[weights]", kWithTorchSave) {}

  std::vector<NamedTensor> read() {
    const ZipEntry* entry = archive_.find(kPickleRecord);
    if (entry == nullptr) {
      fail_torch_file(path_, "is a zip file, but not from torch.save");
    }
    if (entry->size > kMostPickleBytes) {
      throw ConfigError(
          "[weights] '" + path_ + "' has a pickle of " + std::to_string(entry->size) +
          " bytes, expected at most " + std::to_string(kMostPickleBytes) +
          "; name another file");
    }
    if (archive_.find(kByteOrderRecord) != nullptr &&
        archive_.content_of(kByteOrderRecord) != "little") {
      fail_torch_file(path_, "was written on a machine with another byte order");
    }
    const Pickle pickle(archive_.content_of(kPickleRecord), path_, most_values_);
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
  const PickleValue& state_dict_in(const PickleValue& root) const {
    if (root.kind != Kind::dict) {
      fail_torch_file(
          path_, "does not contain a dict of tensors (perhaps a whole module)");
    }
    for (const char* key : {"state_dict", "model_state_dict", "model", "MODEL_STATE"}) {
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
    // A view that autograd tracks would keep the storage after its data are replaced.
    const at::AutoDispatchBelowADInplaceOrView untracked;
    return storage.as_strided(sizes, strides, offset);
  }

  std::vector<int64_t> numbers_of(const std::string& name, const PickleValue& value) {
    std::vector<int64_t> numbers;
    for (const auto* item : value.items) {
      if (item->kind != Kind::number) {
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
    const FilePart range = archive_.range_of(kStorageRecords + key);
    const uint64_t element_size = c10::elementSize(dtype);
    if (range.size % element_size != 0 ||
        static_cast<int64_t>(range.size / element_size) != numel) {
      fail_torch_file(
          path_, "has a tensor '" + name + "' whose storage has another size");
    }
    at::Tensor storage = at::empty({numel}, dtype);
    read_bytes(range, storage.data_ptr());
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
  const TorchZip archive_;
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

bool is_inside(
    int64_t storage_numel, int64_t offset, const std::vector<int64_t>& sizes,
    const std::vector<int64_t>& strides) {
  if (sizes.size() != strides.size() || sizes.size() > kMostDims || offset < 0 ||
      offset > storage_numel) {
    return false;
  }
  bool empty = false;
  int64_t last = offset;
  int64_t numel = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t steps = 0;
    if (sizes[i] < 0 || strides[i] < 0 ||
        __builtin_mul_overflow(numel, std::max<int64_t>(sizes[i], 1), &numel)) {
      return false;
    }
    empty = empty || sizes[i] == 0;
    if (sizes[i] > 0 && (__builtin_mul_overflow(sizes[i] - 1, strides[i], &steps) ||
                         __builtin_add_overflow(last, steps, &last))) {
      return false;
    }
  }
  return empty || last < storage_numel;
}

std::vector<NamedTensor> read_torch_file(const FilePart& file, size_t most_values) {
  return StateReader(file, most_values).read();
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

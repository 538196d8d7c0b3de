#include "tandem/graph/pt2_archive.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/formats/pickle.h"
#include "tandem/formats/torch_file.h"
#include "tandem/graph/pt2_json.h"

namespace tandem {

namespace {

using nlohmann::json;

constexpr uint64_t kExtraBytes = 24'000'000;

// Records of the layout of torch 2.6.
constexpr const char* kOldProgram = "serialized_exported_program.json";
constexpr const char* kOldState = "serialized_state_dict.pt";
constexpr const char* kOldConstants = "serialized_constants.pt";

[[noreturn]] void refuse_archive(const std::string& path, const std::string& what) {
  refuse_pt2(
      path,
      what +
          ", expected a file of torch.export.save; export the model with torch.export");
}

std::vector<int64_t> integers_of(const json& sizes) {
  std::vector<int64_t> numbers;
  for (const auto& size : sizes.get_ref<const json::array_t&>()) {
    numbers.push_back(integer_of(size.at("as_int")));
  }
  return numbers;
}

// Two tensors with equal places are equal.
using Place = std::tuple<const char*, std::vector<int64_t>, std::vector<int64_t>>;

const char* begin_of(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.data_ptr());
}

// Returns the end of the tensor's last element.
const char* end_of(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    last += (tensor.size(i) - 1) * tensor.stride(i);
  }
  return begin_of(tensor) +
         static_cast<size_t>(last + 1) * static_cast<size_t>(tensor.element_size());
}

void check_apart(const std::vector<TiedTensor>& tensors, const std::string& path) {
  std::map<const char*, const TiedTensor*> by_begin;
  const auto refuse = [&](const TiedTensor& a, const TiedTensor& b) {
    refuse_pt2(
        path, "has tensors that share a part of their memory, '" + a.names[0] +
                  "' and '" + b.names[0] + "'; clone one of them before the export");
  };
  for (const auto& tensor : tensors) {
    if (tensor.tensor.numel() == 0) {
      continue;
    }
    const auto [place, added] = by_begin.emplace(begin_of(tensor.tensor), &tensor);
    if (!added) {
      refuse(*place->second, tensor);
    }
  }
  const TiedTensor* before = nullptr;
  for (const auto& [begin, tensor] : by_begin) {
    if (before != nullptr && end_of(before->tensor) > begin) {
      refuse(*before, *tensor);
    }
    before = tensor;
  }
}

}  // namespace

Pt2Archive::Pt2Archive(const std::string& path)
    : path_(path), zip_({path}, "[model]", kExportAgain) {
  // The other zip files of PyTorch.
  if (zip_.has_start("data/aotinductor/")) {
    refuse_archive(path, "is a package of AOTInductor, which cannot be trained");
  }
  if (zip_.has_start("constants.pkl") && zip_.has_start("code/")) {
    refuse_archive(path, "is a TorchScript file");
  }
  if (zip_.find("data.pkl") != nullptr) {
    refuse_archive(path, "contains weights but no network (torch.save)");
  }
  model_ = find_model();
}

size_t Pt2Archive::most_values(size_t bytes_per_value) const {
  return (zip_.size() + kExtraBytes) / bytes_per_value;
}

std::string Pt2Archive::find_model() const {
  static const std::string kFolder = "models/";
  static const std::string kEnding = ".json";
  if (zip_.find(kOldProgram) != nullptr) {
    return "";
  }
  std::string model;
  for (const auto& entry : zip_.entries()) {
    if (entry.name.rfind(kFolder, 0) == 0 && ends_with(entry.name, kEnding)) {
      if (!model.empty()) {
        refuse_archive(path_, "contains several networks");
      }
      model = entry.name.substr(
          kFolder.size(), entry.name.size() - kFolder.size() - kEnding.size());
    }
  }
  if (model.empty()) {
    fail_pt2(path_, "is a zip file without a network");
  }
  return model;
}

json Pt2Archive::program() const {
  return parse_json(
      zip_.content_of(model_.empty() ? kOldProgram : "models/" + model_ + ".json"),
      path_, most_values(kBytesPerJsonValue));
}

std::vector<NamedTensor> Pt2Archive::state(bool read_values) const {
  return tensors("weights", kOldState, read_values);
}

std::map<std::string, at::Tensor> Pt2Archive::constants() const {
  std::map<std::string, at::Tensor> named;
  for (const auto& [name, tensor] : tensors("constants", kOldConstants, true)) {
    named[name] = tensor;
  }
  return named;
}

std::vector<NamedTensor> Pt2Archive::tensors(
    const std::string& kind, const std::string& old_record, bool read_values) const {
  const std::string folder = "data/" + kind + "/";
  const std::string saved = folder + model_ + ".pt";
  std::vector<NamedTensor> found;
  if (model_.empty()) {
    found = saved_tensors(old_record);
  } else if (zip_.find(saved) != nullptr) {
    found = saved_tensors(saved);
  } else {
    found = raw_tensors(folder, model_ + "_" + kind + "_config.json", read_values);
  }
  for (const auto& [name, tensor] : found) {
    // Otherwise a small file could need any amount of memory.
    if (static_cast<uint64_t>(tensor.numel()) * tensor.element_size() >
        tensor.storage().nbytes()) {
      refuse_pt2(
          path_, "has a tensor '" + name +
                     "' that uses elements several times (expand); clone it "
                     "before the export");
    }
  }
  return found;
}

// Reads tensors from files that each contain the bytes of a storage. Several tensors
// may share a storage.
std::vector<NamedTensor> Pt2Archive::raw_tensors(
    const std::string& folder, const std::string& config, bool read_values) const {
  std::vector<std::string> names;
  const auto all = parse_json(
      zip_.content_of(folder + config), path_, most_values(kBytesPerJsonValue),
      [&](int depth, const std::string& name) {
        if (depth == 2) {
          names.push_back(name);
        }
      });
  const json& entries = all.at("config");
  if (names.size() != entries.size()) {
    fail_pt2(path_, "names a tensor twice");
  }
  std::map<std::string, at::Tensor> storages;
  std::vector<NamedTensor> found;
  for (const auto& name : names) {
    const json& entry = entries.at(name);
    if (entry.at("use_pickle") != false || entry.at("tensor_meta").is_null()) {
      refuse_pt2(
          path_,
          "has '" + name +
              "', which is a custom object or a subclass of Tensor; remove it from the "
              "model");
    }
    const std::string& file = string_of(entry.at("path_name"));
    found.push_back(
        {name, view_of(
                   name, entry.at("tensor_meta"), folder + file, read_values,
                   storages[file])});
  }
  return found;
}

// Returns the tensor that `meta` describes. `file` contains the bytes of its storage,
// and is read unless `storage` is set or `read_values` is false.
at::Tensor Pt2Archive::view_of(
    const std::string& name, const json& meta, const std::string& file,
    bool read_values, at::Tensor& storage) const {
  const auto dtype = pt2_dtype(integer_of(meta.at("dtype")));
  if (!dtype || !pt2_layout(integer_of(meta.at("layout")))) {
    refuse_pt2(
        path_,
        "has a tensor '" + name +
            "' with a dtype or layout that tandem does not support; use float32");
  }
  const auto sizes = integers_of(meta.at("sizes"));
  const auto strides = integers_of(meta.at("strides"));
  const int64_t offset = integer_of(meta.at("storage_offset").at("as_int"));
  const FilePart part = zip_.range_of(file);
  const uint64_t element_size = c10::elementSize(*dtype);
  const auto numel = static_cast<int64_t>(part.size / element_size);
  if (part.size % element_size != 0 || !is_inside(numel, offset, sizes, strides) ||
      (storage.defined() && storage.scalar_type() != *dtype)) {
    fail_pt2(path_, "has a tensor '" + name + "' whose size does not fit its bytes");
  }
  if (!storage.defined()) {
    storage = at::empty({numel}, *dtype);
    if (read_values) {
      read_bytes(part, storage.data_ptr());
    }
  }
  // A view that autograd tracks would keep the storage after its data are replaced.
  const at::AutoDispatchBelowADInplaceOrView untracked;
  return storage.as_strided(sizes, strides, offset);
}

std::vector<NamedTensor> Pt2Archive::saved_tensors(const std::string& name) const {
  const FilePart part = zip_.range_of(name);
  try {
    return read_torch_file(part, most_values(Pickle::kBytesPerValue));
  } catch (const DataError&) {
    fail_pt2(path_, "has an entry '" + name + "' that is damaged, or not of tensors");
  } catch (const ConfigError&) {
    refuse_archive(path_, "has an entry '" + name + "' that torch.save does not write");
  }
}

std::vector<TiedTensor> find_tied(
    const std::vector<NamedTensor>& state, const std::string& path) {
  std::vector<TiedTensor> tensors;
  std::map<Place, size_t> places;
  for (const auto& [name, tensor] : state) {
    if (tensor.numel() > 0) {
      const Place place(begin_of(tensor), tensor.sizes().vec(), tensor.strides().vec());
      const auto [found, added] = places.emplace(place, tensors.size());
      if (!added) {
        tensors[found->second].names.push_back(name);
        continue;
      }
    }
    tensors.push_back({{name}, tensor});
  }
  check_apart(tensors, path);
  return tensors;
}

}  // namespace tandem

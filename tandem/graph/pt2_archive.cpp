#include "tandem/graph/pt2_archive.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tandem/formats/pickle.h"
#include "tandem/formats/torch_file.h"
#include "tandem/formats/torch_zip.h"
#include "tandem/formats/weights_format.h"
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

bool by_name(const ZipEntry& a, const ZipEntry& b) {
  return a.name < b.name;
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

Pt2Archive::Pt2Archive(const std::string& path) : file_{path} {
  std::error_code error;
  file_.size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  std::string start(kWeightsStart, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  if (error || (!file && !file.eof())) {
    fail_on_file("read", path);
  }
  start.resize(static_cast<size_t>(file.gcount()));
  if (weights_format(start, file_.size) != WeightsFormat::zip) {
    fail_pt2(path, "is not a file of torch.export.save");
  }
  try {
    entries_ = read_zip_directory(file_);
  } catch (const DataError&) {
    fail_pt2(path, "is incomplete: the directory at its end is missing or damaged");
  }
  for (auto& entry : entries_) {
    entry.name.erase(0, entry.name.find('/') + 1);
  }
  std::sort(entries_.begin(), entries_.end(), &by_name);
  check_kind();
  check_sizes();
  model_ = find_model();
}

// Rejects the other zip files of PyTorch.
void Pt2Archive::check_kind() const {
  const auto has = [&](const std::string& folder) {
    return std::any_of(entries_.begin(), entries_.end(), [&](const ZipEntry& entry) {
      return entry.name.rfind(folder, 0) == 0;
    });
  };
  const std::string& path = file_.path;
  if (has("data/aotinductor/")) {
    refuse_archive(path, "is a package of AOTInductor, which cannot be trained");
  }
  if (has("constants.pkl") && has("code/")) {
    refuse_archive(path, "is a TorchScript file");
  }
  if (find("data.pkl") != nullptr) {
    refuse_archive(path, "contains weights but no network (torch.save)");
  }
}

// Checks sizes before any entry is read, since entries may overlap.
void Pt2Archive::check_sizes() const {
  const std::string& path = file_.path;
  uint64_t bytes = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto& entry = entries_[i];
    if (entry.compressed) {
      refuse_archive(path, "has the compressed entry '" + entry.name + "'");
    }
    if (entry.size > file_.size || (bytes += entry.size) > file_.size) {
      refuse_archive(path, "has entries of more bytes than the file");
    }
    if (i > 0 && entries_[i - 1].name == entry.name) {
      fail_pt2(path, "has two entries '" + entry.name + "'");
    }
  }
}

const ZipEntry* Pt2Archive::find(const std::string& record) const {
  ZipEntry wanted;
  wanted.name = record;
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), wanted, &by_name);
  return found == entries_.end() || found->name != record ? nullptr : &*found;
}

FilePart Pt2Archive::record(const std::string& name) const {
  const auto* found = find(name);
  if (found == nullptr) {
    fail_pt2(file_.path, "has no entry '" + name + "'");
  }
  try {
    return bytes_of(file_, *found);
  } catch (const DataError&) {
    fail_pt2(file_.path, "has the damaged entry '" + name + "'");
  }
}

std::string Pt2Archive::text(const std::string& name) const {
  const FilePart part = record(name);
  std::string bytes(part.size, '\0');
  read_bytes(part, bytes.data());
  return bytes;
}

size_t Pt2Archive::most_values(size_t bytes_per_value) const {
  return (file_.size + kExtraBytes) / bytes_per_value;
}

std::string Pt2Archive::find_model() const {
  static const std::string kFolder = "models/";
  static const std::string kEnding = ".json";
  if (find(kOldProgram) != nullptr) {
    return "";
  }
  std::string model;
  for (const auto& entry : entries_) {
    if (entry.name.rfind(kFolder, 0) == 0 && ends_with(entry.name, kEnding)) {
      if (!model.empty()) {
        refuse_archive(file_.path, "contains several networks");
      }
      model = entry.name.substr(
          kFolder.size(), entry.name.size() - kFolder.size() - kEnding.size());
    }
  }
  if (model.empty()) {
    fail_pt2(file_.path, "is a zip file without a network");
  }
  return model;
}

json Pt2Archive::program() const {
  return parse_json(
      text(model_.empty() ? kOldProgram : "models/" + model_ + ".json"), file_.path,
      most_values(kBytesPerJsonValue));
}

std::vector<NamedTensor> Pt2Archive::state() const {
  return tensors("weights", kOldState);
}

std::map<std::string, at::Tensor> Pt2Archive::constants() const {
  std::map<std::string, at::Tensor> named;
  for (const auto& [name, tensor] : tensors("constants", kOldConstants)) {
    named[name] = tensor;
  }
  return named;
}

std::vector<NamedTensor> Pt2Archive::tensors(
    const std::string& kind, const std::string& old_record) const {
  const std::string folder = "data/" + kind + "/";
  const std::string saved = folder + model_ + ".pt";
  std::vector<NamedTensor> found;
  if (model_.empty()) {
    found = saved_tensors(old_record);
  } else if (find(saved) != nullptr) {
    found = saved_tensors(saved);
  } else {
    found = raw_tensors(folder, model_ + "_" + kind + "_config.json");
  }
  for (const auto& [name, tensor] : found) {
    // Otherwise a small file could need any amount of memory.
    if (static_cast<uint64_t>(tensor.numel()) * tensor.element_size() >
        tensor.storage().nbytes()) {
      refuse_pt2(
          file_.path, "has a tensor '" + name +
                          "' that uses elements several times (expand); clone it "
                          "before the export");
    }
  }
  return found;
}

// Reads tensors from files that each contain the bytes of a storage. Several tensors
// may share a storage.
std::vector<NamedTensor> Pt2Archive::raw_tensors(
    const std::string& folder, const std::string& config) const {
  std::vector<std::string> names;
  const auto all = parse_json(
      text(folder + config), file_.path, most_values(kBytesPerJsonValue),
      [&](int depth, const std::string& name) {
        if (depth == 2) {
          names.push_back(name);
        }
      });
  const json& entries = all.at("config");
  if (names.size() != entries.size()) {
    fail_pt2(file_.path, "names a tensor twice");
  }
  std::map<std::string, at::Tensor> storages;
  std::vector<NamedTensor> found;
  for (const auto& name : names) {
    const json& entry = entries.at(name);
    if (entry.at("use_pickle") != false || entry.at("tensor_meta").is_null()) {
      refuse_pt2(
          file_.path,
          "has '" + name +
              "', which is a custom object or a subclass of Tensor; remove it from the "
              "model");
    }
    const std::string& file = string_of(entry.at("path_name"));
    found.push_back(
        {name, view_of(name, entry.at("tensor_meta"), folder + file, storages[file])});
  }
  return found;
}

// Returns the tensor that `meta` describes. `file` contains the bytes of its storage,
// and is read unless `storage` is set.
at::Tensor Pt2Archive::view_of(
    const std::string& name, const json& meta, const std::string& file,
    at::Tensor& storage) const {
  const auto dtype = pt2_dtype(integer_of(meta.at("dtype")));
  if (!dtype || !pt2_layout(integer_of(meta.at("layout")))) {
    refuse_pt2(
        file_.path,
        "has a tensor '" + name +
            "' with a dtype or layout that tandem does not support; use float32");
  }
  const auto sizes = integers_of(meta.at("sizes"));
  const auto strides = integers_of(meta.at("strides"));
  const int64_t offset = integer_of(meta.at("storage_offset").at("as_int"));
  const FilePart part = record(file);
  const uint64_t element_size = c10::elementSize(*dtype);
  const auto numel = static_cast<int64_t>(part.size / element_size);
  if (part.size % element_size != 0 || !is_inside(numel, offset, sizes, strides) ||
      (storage.defined() && storage.scalar_type() != *dtype)) {
    fail_pt2(
        file_.path, "has a tensor '" + name + "' whose size does not fit its bytes");
  }
  if (!storage.defined()) {
    storage = at::empty({numel}, *dtype);
    read_bytes(part, storage.data_ptr());
  }
  return storage.as_strided(sizes, strides, offset);
}

std::vector<NamedTensor> Pt2Archive::saved_tensors(const std::string& name) const {
  const FilePart part = record(name);
  try {
    return read_torch_file(part, most_values(Pickle::kBytesPerValue));
  } catch (const DataError&) {
    fail_pt2(
        file_.path, "has an entry '" + name + "' that is damaged, or not of tensors");
  } catch (const ConfigError&) {
    refuse_archive(
        file_.path, "has an entry '" + name + "' that torch.save does not write");
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

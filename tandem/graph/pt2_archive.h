#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/core/arena.h"
#include "tandem/formats/torch_zip.h"

namespace tandem {

/// A zip archive that torch.export.save wrote. Three layouts exist: torch 2.6 and 2.7,
/// torch 2.8, and torch 2.9 and later.
///
/// The JSON texts and the tensors together use at most as much memory as the size of
/// the file. The values of a JSON text or a pickle use at most the size of the file
/// plus 24 MB.
class Pt2Archive {
 public:
  /// Reads the archive's directory. Throws DataError if the file is missing, damaged or
  /// not a zip archive. Throws ConfigError if PyTorch wrote the archive for another
  /// purpose, such as weights.
  explicit Pt2Archive(const std::string& path);

  /// Returns the program as JSON, with the fields of ExportedProgram in
  /// torch/_export/serde/schema.py.
  nlohmann::json program() const;

  /// Returns the tensors of the state dict, in the order of the state dict. Tied
  /// weights share their memory. If `read_values` is false, the values of files of
  /// torch 2.9 and later are not read. Throws DataError if a tensor is damaged.
  std::vector<NamedTensor> state(bool read_values) const;

  /// Returns the buffers that are not in the state dict, and other constants. The keys
  /// are their names.
  std::map<std::string, at::Tensor> constants() const;

 private:
  std::string find_model() const;
  size_t most_values(size_t bytes_per_value) const;
  std::vector<NamedTensor> tensors(
      const std::string& kind, const std::string& old_record, bool read_values) const;
  std::vector<NamedTensor> raw_tensors(
      const std::string& folder, const std::string& config, bool read_values) const;
  at::Tensor view_of(
      const std::string& name, const nlohmann::json& meta, const std::string& file,
      bool read_values, at::Tensor& storage) const;
  std::vector<NamedTensor> saved_tensors(const std::string& name) const;

  std::string path_;
  TorchZip zip_;
  // NAME in the entry models/NAME.json; empty in the layout of torch 2.6 and 2.7.
  std::string model_;
};

/// A tensor of a state dict with all of its names. The names are in the order of the
/// state dict.
struct TiedTensor {
  std::vector<std::string> names;
  at::Tensor tensor;
};

/// Combines entries of a state dict that refer to the same tensor (tied weights).
/// Returns each tensor once, in the order of the first names.
///
/// Throws ConfigError if two tensors share only a part of their memory, which arenas do
/// not support. `path` is the name of the file in errors.
std::vector<TiedTensor> find_tied(
    const std::vector<NamedTensor>& state, const std::string& path);

}  // namespace tandem

#include "tandem/formats/tensor_list.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

std::string shape_text(const at::Tensor& tensor) {
  std::vector<std::string> dims;
  for (const int64_t dim : tensor.sizes()) {
    dims.push_back(std::to_string(dim));
  }
  return tensor.dim() == 0 ? "scalar" : join(dims, "x");
}

const at::Tensor* find(
    const std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(
      tensors.begin(), tensors.end(),
      [&](const NamedTensor& entry) { return entry.name == name; });
  return found == tensors.end() ? nullptr : &found->tensor;
}

// Returns text that names a tensor with another prefix; "" if there is none.
std::string with_prefix(
    const std::vector<NamedTensor>& sources, const std::string& name) {
  const auto found = std::find_if(
      sources.begin(), sources.end(),
      [&](const NamedTensor& entry) { return ends_with(entry.name, "." + name); });
  return found == sources.end() ? "" : ", but '" + found->name + "'";
}

}  // namespace

std::vector<std::string> tensor_names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& entry : tensors) {
    names.push_back(entry.name);
  }
  return names;
}

void check_fits(
    const std::string& part, const std::string& path,
    const std::vector<NamedTensor>& sources, const std::vector<NamedTensor>& targets,
    Fit fit) {
  const auto fail = [&](const std::string& what) {
    throw ConfigError(
        "[" + part + "] '" + path + "' " + what +
        "; it belongs to another model or optimizer, change --model");
  };
  for (const auto& [name, target] : targets) {
    const auto* source = find(sources, name);
    if (source == nullptr) {
      fail("has no tensor '" + name + "'" + with_prefix(sources, name));
    } else if (source->sizes() != target.sizes()) {
      fail(
          "has a tensor '" + name + "' of shape " + shape_text(*source) +
          ", the model expects " + shape_text(target));
    }
  }
  for (const auto& entry : sources) {
    if (fit == Fit::exact && find(targets, entry.name) == nullptr) {
      fail("has a tensor '" + entry.name + "' that the model does not have");
    }
  }
}

void copy_values(
    const std::vector<NamedTensor>& sources, const std::vector<NamedTensor>& targets) {
  for (const auto& [name, target] : targets) {
    target.detach().copy_(*find(sources, name));
  }
}

}  // namespace tandem

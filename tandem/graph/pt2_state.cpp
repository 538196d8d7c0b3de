#include "tandem/graph/pt2_state.h"

#include <map>
#include <tuple>

#include "tandem/graph/pt2_errors.h"

namespace tandem {

namespace {

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

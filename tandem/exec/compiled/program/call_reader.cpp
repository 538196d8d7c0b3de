#include "tandem/exec/compiled/program/call_reader.h"

#include <algorithm>

namespace tandem {

Readers::Readers(const Recording& recording) : readers_(recording.tensors.size()) {
  for (size_t call = 0; call < recording.calls.size(); ++call) {
    for_each_read(recording.calls[call], [&](RecordedId id) {
      readers_[static_cast<size_t>(id)].push_back(call);
    });
  }
}

const RecordedTensor* CallReader::tensor(size_t argument) const {
  return id(argument) == kNoTensor
             ? nullptr
             : &recording_.tensors[static_cast<size_t>(id(argument))];
}

at::Tensor CallReader::fixed(size_t argument) const {
  const auto* found = tensor(argument);
  return found != nullptr && found->dtype == at::kFloat && found->is_contiguous
             ? found->fixed
             : at::Tensor();
}

bool CallReader::all(size_t argument, int64_t value) const {
  const auto list = call_.arguments[argument].constant.toIntVector();
  return std::all_of(list.begin(), list.end(), [&](int64_t i) { return i == value; });
}

int64_t CallReader::square(size_t argument) const {
  const auto list = call_.arguments[argument].constant.toIntVector();
  return !list.empty() && all(argument, list[0]) ? list[0] : -1;
}

bool is_images(const RecordedTensor* tensor) {
  return tensor != nullptr && tensor->dtype == at::kFloat && tensor->is_contiguous &&
         tensor->sizes.size() == 4 &&
         std::all_of(tensor->sizes.begin(), tensor->sizes.end(), [](int64_t size) {
           return size > 0;
         });
}

}  // namespace tandem

#include "tandem/parallel/ddp/divided_values.h"

#include <string>

#include "tandem/base/error.h"

namespace tandem {

std::vector<at::Tensor> ChunkCount::divide(const at::Tensor& tensor) {
  if (tensor.dim() == 0) {
    throw ConfigError(
        "[data_parallel] an input has no dimension to divide; give it as a number, or "
        "with a row for each sample");
  }
  auto chunks = tensor.chunk(num_replicas_);
  const auto count = static_cast<int64_t>(chunks.size());
  if (chunks_ >= 0 && count != chunks_) {
    throw ConfigError(
        "[data_parallel] one input of " + std::to_string(rows_) + " rows makes " +
        std::to_string(chunks_) + " chunks and one of " +
        std::to_string(tensor.size(0)) + " rows " + std::to_string(count) +
        "; give all tensors as many rows");
  }
  rows_ = chunks_ < 0 ? tensor.size(0) : rows_;
  chunks_ = count;
  return chunks;
}

at::Tensor concatenate(std::vector<at::Tensor> of_replicas) {
  for (auto& output : of_replicas) {
    if (output.defined() && output.dim() == 0) {
      output = output.unsqueeze(0);
    }
  }
  return of_replicas[0].defined() ? at::cat(of_replicas) : at::Tensor();
}

void refuse_lengths(size_t of_first, size_t of_other) {
  throw ConfigError(
      "[data_parallel] replica 0 returned a list of " + std::to_string(of_first) +
      ", another one of " + std::to_string(of_other) +
      "; return as many tensors for every chunk");
}

}  // namespace tandem

#include "tandem/checkpoint/rank_files.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint_files.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/tensor_list.h"

namespace tandem {

namespace {

constexpr int kTag = 1;
constexpr const char* kStrategy = "strategy";

// Returns a tensor of at least `bytes` bytes. Its elements have 8 bytes, because some
// backends limit the number of elements.
at::Tensor words_for(int64_t bytes) {
  return at::zeros({(bytes + 7) / 8}, at::kLong);
}

}  // namespace

std::string rank_file_name(int rank, int size) {
  return fmt::format("rank-{:04}-of-{:04}.safetensors", rank, size);
}

std::vector<std::string> gather_rank_files(
    const std::vector<NamedTensor>& tensors, const std::string& strategy,
    Communicator& comm) {
  const std::string mine =
      tensors.empty() ? ""
                      : unhashed_safetensors_bytes({tensors, {{kStrategy, strategy}}});
  const auto sizes = comm.stack(
      at::full({1}, static_cast<int64_t>(mine.size()), at::kLong), "rank state");
  if (sizes.sum().item<int64_t>() == 0) {
    return {};
  }
  if (comm.rank() != 0) {
    if (!mine.empty()) {
      const auto words = words_for(static_cast<int64_t>(mine.size()));
      std::memcpy(words.data_ptr(), mine.data(), mine.size());
      comm.send(words, 0, kTag, "rank state")->wait();
    }
    return {};
  }
  std::vector<std::string> files = {mine};
  for (int rank = 1; rank < comm.size(); ++rank) {
    const auto size = sizes.data_ptr<int64_t>()[rank];
    const auto words = words_for(size);
    if (size > 0) {
      comm.recv(words, rank, kTag, "rank state")->wait();
    }
    files.emplace_back(
        static_cast<const char*>(words.data_ptr()), static_cast<size_t>(size));
  }
  return files;
}

bool load_rank_file(
    const std::string& checkpoint, const std::map<std::string, std::string>& hashes,
    const std::vector<NamedTensor>& tensors, const std::string& strategy,
    Communicator& comm) {
  const std::string name = rank_file_name(comm.rank(), comm.size());
  const std::string path = checkpoint + "/" + name;
  const auto listed = hashes.find(name);
  SafetensorsFile file;
  if (!tensors.empty() && listed != hashes.end()) {
    file = parse_rank_file(read_file(path), path, listed->second);
  }
  const bool fits = tensors.empty() || file.metadata[kStrategy] == strategy;
  auto present = at::full({1}, fits ? 1 : 0, at::kLong);
  comm.all_reduce(present, ReduceOp::min, "rank state")->wait();
  if (present.item<int64_t>() == 0) {
    return false;
  }
  check_fits("checkpoint", path, file.tensors, tensors, Fit::complete);
  copy_values(file.tensors, tensors);
  return true;
}

}  // namespace tandem

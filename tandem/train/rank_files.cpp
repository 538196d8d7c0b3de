#include "tandem/train/rank_files.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/train/safetensors.h"
#include "tandem/train/tensor_list.h"

namespace tandem {

namespace {

constexpr int kTag = 1;
constexpr const char* kStrategy = "strategy";

// In words of 8 bytes, of which a backend moves more at once than of bytes.
at::Tensor words_for(int64_t bytes) {
  return at::zeros({(bytes + 7) / 8}, at::kLong);
}

bool is_there(const std::string& path, const std::string& strategy) {
  if (!file_exists(path)) {
    return false;
  }
  const auto metadata = read_safetensors(path).metadata;
  const auto found = metadata.find(kStrategy);
  return found != metadata.end() && found->second == strategy;
}

}  // namespace

std::string rank_file_name(int rank, int size) {
  return fmt::format("rank-{:04}-of-{:04}.safetensors", rank, size);
}

std::vector<std::string> gather_rank_files(
    const std::vector<NamedTensor>& tensors, const std::string& strategy,
    Communicator& comm) {
  const std::string mine =
      tensors.empty() ? "" : safetensors_bytes({tensors, {{kStrategy, strategy}}});
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
    const std::string& checkpoint, const std::vector<NamedTensor>& tensors,
    const std::string& strategy, Communicator& comm) {
  const std::string path = checkpoint + "/" + rank_file_name(comm.rank(), comm.size());
  auto present =
      at::full({1}, tensors.empty() || is_there(path, strategy) ? 1 : 0, at::kLong);
  comm.all_reduce(present, ReduceOp::min, "rank state")->wait();
  if (present.item<int64_t>() == 0) {
    return false;
  }
  if (!tensors.empty()) {
    const auto file = read_safetensors(path);
    check_fits("checkpoint", path, file.tensors, tensors, Fit::complete);
    copy_values(file.tensors, tensors);
  }
  return true;
}

}  // namespace tandem

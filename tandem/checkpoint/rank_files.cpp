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
constexpr const char* kLabel = "rank state";
constexpr const char* kStrategy = "strategy";

// Returns a tensor of at least `bytes` bytes. Its elements have 8 bytes, because some
// backends limit the number of elements.
at::Tensor words_for(size_t bytes) {
  return at::zeros({static_cast<int64_t>((bytes + 7) / 8)}, at::kLong);
}

void send_bytes(const std::string& bytes, int rank, Communicator& comm) {
  if (!bytes.empty()) {
    const auto words = words_for(bytes.size());
    std::memcpy(words.data_ptr(), bytes.data(), bytes.size());
    comm.send(words, rank, kTag, kLabel)->wait();
  }
}

std::string receive_bytes(int64_t count, int rank, Communicator& comm) {
  const auto size = static_cast<size_t>(count);
  const auto words = words_for(size);
  if (size > 0) {
    comm.recv(words, rank, kTag, kLabel)->wait();
  }
  return {static_cast<const char*>(words.data_ptr()), size};
}

// Returns the content of this rank's file, which rank 0 reads; "" if `hashes` has no
// file of this rank. Collective.
std::string read_rank_file(
    const std::string& checkpoint, const std::map<std::string, std::string>& hashes,
    Communicator& comm) {
  std::vector<std::string> files(static_cast<size_t>(comm.size()));
  const auto sizes = at::zeros({comm.size()}, at::kLong);
  auto* size_of = sizes.data_ptr<int64_t>();
  comm.on_rank_0(
      [&] {
        for (int rank = 0; rank < comm.size(); ++rank) {
          const auto name = rank_file_name(rank, comm.size());
          if (hashes.count(name) > 0) {
            files[static_cast<size_t>(rank)] = read_file(checkpoint + "/" + name);
          }
          size_of[rank] = static_cast<int64_t>(files[static_cast<size_t>(rank)].size());
        }
        return "";
      },
      kLabel);
  comm.broadcast(sizes, 0, kLabel)->wait();
  if (comm.rank() != 0) {
    return receive_bytes(size_of[comm.rank()], 0, comm);
  }
  for (int rank = 1; rank < comm.size(); ++rank) {
    send_bytes(files[static_cast<size_t>(rank)], rank, comm);
  }
  return files[0];
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
  const auto sizes =
      comm.stack(at::full({1}, static_cast<int64_t>(mine.size()), at::kLong), kLabel);
  if (sizes.sum().item<int64_t>() == 0) {
    return {};
  }
  if (comm.rank() != 0) {
    send_bytes(mine, 0, comm);
    return {};
  }
  std::vector<std::string> files = {mine};
  for (int rank = 1; rank < comm.size(); ++rank) {
    files.push_back(receive_bytes(sizes.data_ptr<int64_t>()[rank], rank, comm));
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
  const auto bytes = read_rank_file(checkpoint, hashes, comm);
  SafetensorsFile file;
  if (!tensors.empty() && listed != hashes.end()) {
    file = parse_rank_file(bytes, path, listed->second);
  }
  const bool fits = tensors.empty() || file.metadata[kStrategy] == strategy;
  auto present = at::full({1}, fits ? 1 : 0, at::kLong);
  comm.all_reduce(present, ReduceOp::min, kLabel)->wait();
  if (present.item<int64_t>() == 0) {
    return false;
  }
  check_fits("checkpoint", path, file.tensors, tensors, Fit::complete);
  copy_values(file.tensors, tensors);
  return true;
}

}  // namespace tandem

#include "tandem/checkpoint/rank_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint_files.h"
#include "tandem/comm/exchange.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/tensor_list.h"

namespace tandem {

namespace {

constexpr const char* kLabel = "rank state";
constexpr const char* kStrategy = "strategy";

// Returns the content of this rank's file, which rank 0 reads; "" if `hashes` has no
// file of this rank. Rank 0 has only one file at a time in memory. Collective.
std::string read_rank_file(
    const std::string& checkpoint, const std::map<std::string, std::string>& hashes,
    Communicator& comm) {
  std::string mine;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto name = rank_file_name(rank, comm.size());
    if (hashes.count(name) == 0) {
      continue;
    }
    std::string file;
    comm.on_rank_0(
        [&] {
          file = read_file(checkpoint + "/" + name);
          return "";
        },
        kLabel);
    if (rank == 0) {
      mine = std::move(file);
    } else if (comm.rank() == 0) {
      send_text(file, rank, kLabel, comm);
    } else if (comm.rank() == rank) {
      mine = receive_text(0, kLabel, comm);
    }
  }
  return mine;
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
  auto files = gather_texts(mine, kLabel, comm);
  if (std::all_of(
          files.begin(), files.end(), [](const auto& file) { return file.empty(); })) {
    files.clear();
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
  const bool is_needed =
      reduce_count(tensors.empty() ? 0 : 1, ReduceOp::max, kLabel, comm) > 0;
  const auto bytes = is_needed ? read_rank_file(checkpoint, hashes, comm) : "";
  SafetensorsFile file;
  if (!tensors.empty() && listed != hashes.end()) {
    file = parse_rank_file(bytes, path, listed->second);
  }
  const bool fits = tensors.empty() || file.metadata[kStrategy] == strategy;
  if (reduce_count(fits ? 1 : 0, ReduceOp::min, kLabel, comm) == 0) {
    return false;
  }
  check_fits("checkpoint", path, file.tensors, tensors, Fit::complete);
  copy_values(file.tensors, tensors);
  return true;
}

}  // namespace tandem

#include "tandem/parallel/pipeline/tensor_exchange.h"

#include <ATen/ops/empty.h>

#include <sstream>
#include <string>

namespace tandem {

namespace {

constexpr int kTag = 0;

// A line per tensor: dtype, number of dims, dims, name.
std::string describe(const std::vector<NamedTensor>& tensors) {
  std::ostringstream text;
  for (const auto& [name, tensor] : tensors) {
    text << static_cast<int>(tensor.scalar_type()) << ' ' << tensor.dim();
    for (const int64_t dim : tensor.sizes()) {
      text << ' ' << dim;
    }
    text << ' ' << name << '\n';
  }
  return text.str();
}

std::vector<NamedTensor> make_described(const std::string& description) {
  std::vector<NamedTensor> tensors;
  std::istringstream text(description);
  int dtype = 0;
  size_t num_dims = 0;
  while (text >> dtype >> num_dims) {
    std::vector<int64_t> dims(num_dims);
    for (auto& dim : dims) {
      text >> dim;
    }
    std::string name;
    std::getline(text >> std::ws, name);
    tensors.push_back({name, at::empty(dims, static_cast<at::ScalarType>(dtype))});
  }
  return tensors;
}

}  // namespace

std::vector<NamedTensor> gather_tensors(
    Communicator& comm, std::vector<NamedTensor> mine, int root) {
  std::vector<NamedTensor> all;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto description = comm.broadcast_text(describe(mine), rank, "state");
    if (comm.rank() == root) {
      const auto tensors = rank == root ? mine : make_described(description);
      for (const auto& [name, tensor] : tensors) {
        if (rank != root) {
          comm.recv(tensor, rank, kTag, name)->wait();
        }
      }
      all.insert(all.end(), tensors.begin(), tensors.end());
    } else if (comm.rank() == rank) {
      for (const auto& [name, tensor] : mine) {
        comm.send(tensor.detach().cpu().contiguous(), root, kTag, name)->wait();
      }
    }
  }
  return comm.rank() == root ? all : mine;
}

}  // namespace tandem

#include "tandem/checkpoint/state_parts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/comm/exchange.h"

namespace tandem {

namespace {

constexpr const char* kLabel = "shares of the state";
constexpr int kTag = 2;

struct Source {
  int rank;
  StatePart part;
};

// The ranks that have pieces of a tensor, in rank order.
struct Pieces {
  at::ScalarType dtype;
  bool is_number = false;
  std::vector<Source> sources;
};

std::map<std::string, Pieces> pieces_of_all(
    const std::vector<StatePiece>& pieces, Communicator& comm) {
  auto mine = nlohmann::json::array();
  for (const auto& piece : pieces) {
    mine.push_back(
        {piece.name, static_cast<int>(piece.tensor.scalar_type()),
         piece.tensor.dim() == 0, piece.part.begin, piece.part.end});
  }
  const auto texts = gather_texts(mine.dump(), kLabel, comm);
  const auto all = nlohmann::json::parse(
      comm.broadcast_text("[" + join(texts, ",") + "]", 0, kLabel));
  std::map<std::string, Pieces> tensors;
  for (int rank = 0; rank < comm.size(); ++rank) {
    for (const auto& row : all[static_cast<size_t>(rank)]) {
      auto& tensor = tensors[row[0]];
      tensor.dtype = static_cast<at::ScalarType>(row[1].get<int>());
      tensor.is_number = row[2];
      // Each rank that has elements of a parameter has its numbers.
      if (!tensor.is_number) {
        tensor.sources.push_back({rank, {row[3], row[4]}});
      } else if (tensor.sources.empty()) {
        tensor.sources.push_back({rank, {0, 1}});
      }
    }
  }
  return tensors;
}

at::Tensor empty_as(const Pieces& pieces, const at::Tensor& parameter) {
  return pieces.is_number ? at::empty({}, pieces.dtype)
                          : at::empty_strided(
                                parameter.sizes(), parameter.strides(),
                                at::TensorOptions(at::kCPU).dtype(pieces.dtype));
}

// Sends this rank's pieces of a tensor to the rank `collector`, which receives all of
// them into `whole`.
void send_pieces(
    const Pieces& pieces, const at::Tensor& mine, const at::Tensor& whole,
    int collector, Communicator& comm) {
  for (const auto& [rank, part] : pieces.sources) {
    const bool sends = rank == comm.rank();
    const auto target = whole.defined() ? part_of(whole, part) : at::Tensor();
    const auto piece = sends ? mine.detach().cpu().reshape({-1}) : at::Tensor();
    if (sends && whole.defined()) {
      target.copy_(piece);
    } else if (sends) {
      comm.send(piece, collector, kTag, kLabel)->wait();
    } else if (whole.defined()) {
      comm.recv(target, rank, kTag, kLabel)->wait();
    }
  }
}

}  // namespace

at::Tensor part_of(const at::Tensor& tensor, StatePart part) {
  return tensor.as_strided({tensor.numel()}, {1}).slice(0, part.begin, part.end);
}

at::Tensor laid_out_as(const at::Tensor& like, const at::Tensor& value) {
  if (value.strides() == like.strides()) {
    return value;
  }
  auto laid_out = at::empty_strided(like.sizes(), like.strides(), value.options());
  return laid_out.copy_(value);
}

std::vector<NamedTensor> collect_pieces(
    const std::vector<StatePiece>& pieces, const std::vector<int>& collectors,
    const std::function<at::Tensor(const std::string& name)>& parameter_of,
    Communicator& comm) {
  std::map<std::string, at::Tensor> mine;
  for (const auto& piece : pieces) {
    mine[piece.name] = piece.tensor;
  }
  std::vector<int64_t> loads(collectors.size(), 0);
  std::vector<NamedTensor> collected;
  for (const auto& [name, tensor] : pieces_of_all(pieces, comm)) {
    const auto least = std::min_element(loads.begin(), loads.end());
    const int collector = collectors[static_cast<size_t>(least - loads.begin())];
    for (const auto& source : tensor.sources) {
      *least += (source.part.end - source.part.begin) *
                static_cast<int64_t>(c10::elementSize(tensor.dtype));
    }
    const bool collects = collector == comm.rank();
    const auto whole = collects ? empty_as(tensor, parameter_of(name)) : at::Tensor();
    send_pieces(tensor, mine[name], whole, collector, comm);
    if (collects) {
      collected.push_back({name, whole});
    }
  }
  return collected;
}

}  // namespace tandem

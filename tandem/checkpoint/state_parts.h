#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// Returns a flat view of the elements `part` of a tensor, in the order of its memory,
/// which has no gaps.
[[nodiscard]] at::Tensor part_of(const at::Tensor& tensor, StatePart part);

/// Returns `value` in the memory order of `like`, a tensor of the same shape. Copies
/// `value` only if it has another order.
[[nodiscard]] at::Tensor laid_out_as(const at::Tensor& like, const at::Tensor& value);

/// A tensor of which ranks have parts.
struct StatePiece {
  std::string name;
  // The elements of this rank, flat; or a number (without dimensions), which every rank
  // that has elements of the same parameter also has.
  at::Tensor tensor;
  StatePart part;
};

/// Completes the tensors of which ranks have pieces. Each tensor is returned by one of
/// the ranks `collectors`, which get about equal numbers of bytes; each rank has one
/// piece of another rank in memory at a time. `parameter_of` returns, on every rank,
/// the parameter whose shape and memory order the tensor `name` has. Tensors are in
/// main memory. Collective.
[[nodiscard]] std::vector<NamedTensor> collect_pieces(
    const std::vector<StatePiece>& pieces, const std::vector<int>& collectors,
    const std::function<at::Tensor(const std::string& name)>& parameter_of,
    Communicator& comm);

}  // namespace tandem

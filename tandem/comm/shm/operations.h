#pragma once

#include "tandem/comm/shm/operation.h"

namespace tandem {

/// The collectives over shared memory; arguments as in communicator.h.
///
/// Sums are in rank order. all_reduce of a tensor in shared memory: each rank sums its
/// own slice, reading all ranks' tensors, and writes the sum to all of them; all_gather
/// into such tensors: each rank writes its part to all. Of others: each rank puts a
/// chunk after the other where the others see it; two ranks, or small tensors, are
/// summed by each rank whole, else by slices.

std::shared_ptr<ShmOperation> shm_all_reduce(
    ShmCollectives& group, const at::Tensor& tensor, ReduceOp op);
std::shared_ptr<ShmOperation> shm_broadcast(
    ShmCollectives& group, const at::Tensor& tensor, int root);
std::shared_ptr<ShmOperation> shm_reduce_scatter(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input);
std::shared_ptr<ShmOperation> shm_all_gather(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input);
std::shared_ptr<ShmOperation> shm_scatter(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input, int root);
std::shared_ptr<ShmOperation> shm_gather(
    ShmCollectives& group, const at::Tensor& output, const at::Tensor& input, int root);

}  // namespace tandem

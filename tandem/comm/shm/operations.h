#pragma once

#include "tandem/comm/shm/operation.h"

namespace tandem {

/// The collectives over shared memory; arguments as in communicator.h.
///
/// Sums are in rank order. Where all ranks' tensors are in shared memory, all_reduce
/// has each rank sum its own slice, reading all tensors, and write the sum to all of
/// them; all_gather has each rank write its part to all outputs. Otherwise each rank
/// puts one chunk after the other where the others see it. all_reduce then sums by
/// slices, or, with two ranks or a small tensor, the whole on each rank.

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

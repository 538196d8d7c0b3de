#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <memory>
#include <ostream>

#include "tandem/comm/communicator.h"
#include "tandem/parallel/statistics_group.h"

namespace tandem {

/// The module of SyncBatchNorm.
class SyncBatchNormImpl : public torch::nn::NormImplBase<
                              0, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  /// `comm` must outlive this object. The first forward in training forms a group of
  /// its ranks.
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, Communicator& comm);

  /// Normalizes `input`. Collective in training mode, also in the backward pass.
  torch::Tensor forward(const torch::Tensor& input);

  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const torch::Tensor& input) override;

 private:
  torch::Tensor forward_in_training(const torch::Tensor& input);

  // Shared by clones of the module.
  std::shared_ptr<StatisticsGroup> group_;
};

/// Batch norm whose statistics in training are those of all ranks' samples. The
/// counterpart of torch.nn.SyncBatchNorm, also for CPUs.
///
///   struct Net : torch::nn::Module {
///     explicit Net(tandem::Communicator& comm)
///         : norm(register_module(
///               "norm", tandem::SyncBatchNorm(torch::nn::BatchNormOptions(64), comm)))
///               {}
///     tandem::SyncBatchNorm norm;
///   };
///
/// The input has the shape N x C x ..., with any number of further dimensions, and the
/// dtype of the parameters (float32 or float64), or bfloat16 under autocast. N may
/// differ between ranks. Options, parameters and buffers are those of
/// torch::nn::BatchNorm2d, with the same names in checkpoints. In evaluation mode, and
/// in a group of one rank, the module computes the values of torch::nn::BatchNorm2d.
/// Use DistributedDataParallelOptions::buffers = off, since all ranks have the same
/// running statistics.
///
/// Throws ConfigError for an input of fewer than 2 dimensions, or if all ranks together
/// have a single value per channel. `tandem train` computes the same values with
/// `--buffers sync`.
///
/// Source: torch/nn/modules/batchnorm.py, and graph/sync_batch_norm.h.
TORCH_MODULE(SyncBatchNorm);

}  // namespace tandem

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/comm/communicator.h"
#include "tandem/core/module_state.h"

namespace torch {
namespace optim {
class LRScheduler;
class Optimizer;
}  // namespace optim
}  // namespace torch

namespace tandem {

class LoopShare;

/// Saves and resumes a custom LibTorch training loop, with or without
/// DistributedDataParallel.
///
///   tandem::Checkpoint checkpoint("checkpoints", *net, optimizer, *run.comm);
///   tandem::Position at;
///   checkpoint.resume(at);
///   while (at.epoch < epochs) {
///     ...  // Train for an epoch; ++at.step after each optimizer step.
///     ++at.epoch;
///     checkpoint.save(at);
///   }
///
/// **Content.** A checkpoint is a directory with two safetensors files (checkpoint.h):
/// - the module's parameters and buffers;
/// - the optimizer: all options of each parameter group, such as the learning rate, and
///   the state of each parameter, such as "exp_avg/fc1.weight";
/// - the number of steps of a learning-rate scheduler (set_scheduler());
/// - the position in the run;
/// - each rank's default generator for the CPU, which draws dropout masks;
/// - the tensors of add_state(), such as the state of a GradScaler.
///
/// With a ShardedOptimizer, each rank whose host finds the directory writes its share
/// of the state, and with Sharding::parameters its share of the module
/// (CheckpointContent). No rank then needs memory for the whole state. A loop can
/// resume with another kind of sharding.
///
/// Tensors have the names of the module's parameters. A loop can therefore resume with
/// another number of ranks. A rank that did not exist when the checkpoint was saved
/// then keeps its generator. With the same number of ranks, a resumed loop computes the
/// same bits as an undisturbed loop.
///
/// **Optimizers.** SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS of torch::optim, and
/// the optimizers of optim/torch_optim.h, with any parameter groups. Classes that are
/// derived from these, except ShardedOptimizer, are rejected, because they may have
/// more state.
///
/// All objects must outlive the Checkpoint. Not thread-safe.
class Checkpoint {
 public:
  /// `directory` is the directory of the checkpoints on rank 0's host. Other hosts need
  /// not have it. `kept` selects the checkpoints that save() keeps.
  /// For a module holder `net`, pass `*net`.
  ///
  /// Throws ConfigError for another optimizer class, or if the optimizer has a
  /// parameter that is not in the module.
  template <typename Module>
  Checkpoint(
      std::string directory, const Module& module, torch::optim::Optimizer& optimizer,
      Communicator& comm, const KeptCheckpoints& kept = {3})
      : Checkpoint(std::move(directory), module_state(module), optimizer, comm, kept) {}
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;

  /// Adds a learning-rate scheduler, whose number of steps is saved. Further members of
  /// a custom scheduler are not saved. LibTorch's ReduceLROnPlateauScheduler gives no
  /// access to its state, so it cannot be added.
  void set_scheduler(torch::optim::LRScheduler& scheduler);

  /// Adds tensors in main memory, equal on all ranks, which are saved under their names
  /// and loaded in place: scaler.state().named_views() for a GradScaler, or
  /// LocalSgd::state().
  void add_state(const std::vector<NamedTensor>& tensors);

  /// Writes the checkpoint DIRECTORY/step-00000469 for `position.step`. Collective:
  /// rank 0 writes, or each rank its share, and all ranks return when the checkpoint is
  /// complete.
  ///
  /// If writing fails, throws DataError on all ranks, and no older checkpoint changes.
  /// If the module has values that are not finite, the rank that would write them
  /// throws ValuesNotFinite instead.
  void save(const Position& position);

  /// Loads the newest checkpoint that is not damaged into module, optimizer, scheduler,
  /// generators and `position`. Returns false and changes nothing if there is no
  /// checkpoint. Collective.
  ///
  /// Throws DataError if all checkpoints are damaged, ConfigError for a checkpoint of
  /// another module or optimizer. After an error, nothing has changed on this rank.
  bool resume(Position& position);

 private:
  Checkpoint(
      std::string directory, std::vector<NamedTensor> module,
      torch::optim::Optimizer& optimizer, Communicator& comm,
      const KeptCheckpoints& kept);

  CheckpointContent content(const Position& position);
  std::vector<NamedTensor> common_state(const at::Tensor& generators);
  void save_whole(const Position& position, const at::Tensor& generators);
  void save_shares(const Position& position, const at::Tensor& generators);
  // Returns the parameters of the optimizer, with their names.
  const std::vector<NamedTensor>& optimized() const;
  void load(const std::string& path, Position& position);

  const std::string directory_;
  const std::vector<NamedTensor> module_;
  const std::set<std::string> infinite_buffers_;
  torch::optim::Optimizer& optimizer_;
  // Null unless ranks divide the optimizer's state.
  std::unique_ptr<LoopShare> share_;
  torch::optim::LRScheduler* scheduler_ = nullptr;
  std::vector<NamedTensor> added_;
  Communicator& comm_;
  const KeptCheckpoints kept_;
};

}  // namespace tandem

#pragma once

#include <torch/optim/optimizer.h>

#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "tandem/optim/grad_scaler.h"
#include "tandem/parallel/ddp/distributed_data_parallel.h"

namespace torch {
namespace optim {
class LBFGS;
}  // namespace optim
}  // namespace torch

namespace tandem {

/// True for an optimizer of torch::optim that computes elements of a parameter from
/// other elements of its gradient.
template <typename Optimizer, typename = void>
inline constexpr bool kNeedsWholeParameters =
    std::is_same_v<Optimizer, torch::optim::LBFGS>;
template <typename Optimizer>
inline constexpr bool kNeedsWholeParameters<
    Optimizer, std::void_t<decltype(Optimizer::kNeedsWholeTensors)>> =
    Optimizer::kNeedsWholeTensors;

/// The part of ShardedOptimizer that does not depend on the class of torch::optim.
class ShardedOptimizerBase : public CommonDecision {
 public:
  /// Throws ConfigError unless the tensors of `groups` are of ddp.own_parameters() and
  /// of no other ShardedOptimizer.
  ShardedOptimizerBase(
      DistributedDataParallel& ddp,
      const std::vector<torch::optim::OptimizerParamGroup>& groups)
      : ddp_(ddp) {
    for (const auto& group : groups) {
      owned_.insert(owned_.end(), group.params().begin(), group.params().end());
    }
    ddp.own(owned_);
  }
  ~ShardedOptimizerBase() override {
    ddp_.disown(owned_);
  }
  ShardedOptimizerBase(const ShardedOptimizerBase&) = delete;
  ShardedOptimizerBase& operator=(const ShardedOptimizerBase&) = delete;

  bool holds_on_all_ranks(bool mine) override {
    return ddp_.holds_on_all_ranks(mine);
  }

  /// Returns the object whose share the optimizer updates.
  DistributedDataParallel& ddp() const {
    return ddp_;
  }
  /// Returns the type of the optimizer in torch::optim.
  virtual const std::type_info& class_of_optimizer() const = 0;

 private:
  DistributedDataParallel& ddp_;
  std::vector<at::Tensor> owned_;
};

/// An optimizer of torch::optim that updates only this rank's share of the parameters,
/// and then sends the result to the other ranks. Its state, such as Adam's averages,
/// exists only for the share. The counterpart of PyTorch's ZeroRedundancyOptimizer, and
/// of an optimizer over the parameters of fully_shard().
///
///   tandem::DistributedDataParallelOptions options;
///   options.shard = tandem::Sharding::optimizer;
///   tandem::DistributedDataParallel ddp(*net, *run.comm, options);
///   tandem::ShardedOptimizer<torch::optim::Adam> optimizer(
///       ddp, torch::optim::AdamOptions(1e-3));
///
/// `Base` must compute each element of a parameter from the same element of its
/// gradient, as SGD, Adam, AdamW, Adagrad and RMSprop of torch::optim and Adadelta,
/// Adamax, Lion, NAdam and RAdam of tandem do. LBFGS, Adafactor, Lamb and Muon do not,
/// so they do not compile. Every
/// division into shares then gives the same bits. With Sharding::none, the share is all
/// parameters, so one loop fits all kinds of sharding.
///
/// Checkpoint saves and loads its state, on any number of ranks and with any kind of
/// sharding. step() is collective. Create the optimizer after `ddp`, which must outlive
/// it. Not thread-safe.
template <typename Base>
class ShardedOptimizer : public Base, public ShardedOptimizerBase {
  static_assert(
      !kNeedsWholeParameters<Base>,
      "this optimizer needs whole parameters; use it without ShardedOptimizer, and "
      "with Sharding::none");

 public:
  /// Updates the share of all trainable parameters.
  template <typename Options>
  ShardedOptimizer(DistributedDataParallel& ddp, const Options& options)
      : ShardedOptimizer(
            ddp,
            std::vector{
                torch::optim::OptimizerParamGroup(tensors_of(ddp.own_parameters()))},
            options) {}

  /// Updates groups of tensors from ddp.own_parameters(), each with its own options or
  /// with `defaults`. Throws ConfigError for other tensors, or if another
  /// ShardedOptimizer updates one of them.
  template <typename Options>
  ShardedOptimizer(
      DistributedDataParallel& ddp,
      std::vector<torch::optim::OptimizerParamGroup> groups, const Options& defaults)
      : Base(std::move(groups), defaults),
        ShardedOptimizerBase(ddp, Base::param_groups()) {}

  /// Makes a step as `Base` does. With Sharding::optimizer and Sharding::gradients, all
  /// ranks then have all parameters.
  torch::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override {
    auto loss = Base::step(std::move(closure));
    ddp().gather_updated();
    return loss;
  }

  /// Sets all gradients to zero, also those of other ranks' shares.
  void zero_grad(bool /*set_to_none*/ = true) {
    ddp().zero_grad();
  }

  const std::type_info& class_of_optimizer() const override {
    return typeid(Base);
  }
};

}  // namespace tandem

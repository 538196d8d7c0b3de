#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/parallel/ddp/distributed_data_parallel.h"

namespace tandem {

/// The share of a rank in the checkpoints of a custom loop with a ShardedOptimizer.
/// Tensors of the optimizer's state have the names of optimizer_tensors.h.
class LoopShare {
 public:
  /// `module` has the tensors of the module that `ddp` wraps. `ddp` must outlive this
  /// object. Throws ConfigError if a parameter of `ddp` is not in `module`.
  LoopShare(const std::vector<NamedTensor>& module, DistributedDataParallel& ddp);

  /// Returns whether ranks also divide the module.
  bool divides_model() const {
    return ddp_.shard() == Sharding::parameters;
  }

  /// Returns the elements of parameters that this rank has.
  const std::vector<NamedTensor>& own_parameters() const {
    return ddp_.own_parameters();
  }

  /// Returns the tensors that this rank writes, with whole tensors. `optimizer` has
  /// the options and this rank's state of the optimizer. The ranks `writers` find the
  /// directory of the checkpoints. Collective.
  TrainingState collect(
      const std::vector<NamedTensor>& optimizer, const std::vector<int>& writers);

  /// Returns the ranks of `finders` that write shares: those of the first shard group,
  /// whose replicas the other groups are.
  std::vector<int> writers(const std::vector<int>& finders) const;

  /// Returns this rank's elements of a tensor of the module; all of them unless ranks
  /// divide the module. Empty if it has none.
  std::vector<NamedTensor> part_of_model(const NamedTensor& whole) const;
  /// Returns this rank's elements of a tensor of the optimizer's state.
  std::vector<NamedTensor> part_of_state(const NamedTensor& whole) const;

  /// Copies the results of part_of_model() into the module.
  void load_model(const std::vector<NamedTensor>& parts);

 private:
  std::vector<NamedTensor> collect_optimizer(
      const std::vector<NamedTensor>& optimizer, const std::vector<int>& writers);
  std::vector<NamedTensor> collect_model(const std::vector<int>& writers);
  std::vector<NamedTensor> part_of_parameter(
      const std::string& parameter, const NamedTensor& whole) const;
  // Returns the name of the divided parameter that has this name in the module; "" for
  // other tensors.
  std::string divided_name(const std::string& name) const;

  const std::vector<NamedTensor> module_;
  DistributedDataParallel& ddp_;
  // The trainable parameters, by name in the arenas.
  std::map<std::string, at::Tensor> parameters_;
  // Names in the arenas by the names in the module; parameters with several names have
  // one in the arenas.
  std::map<std::string, std::string> name_in_arenas_;
  std::map<std::string, StatePart> parts_;
};

}  // namespace tandem

#pragma once

#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/config/options/strategy_options.h"
#include "tandem/core/arena.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// The trainable parameters that a rank updates: all of them, or with sharding its part
/// of every bucket (Bucket::part()). An optimizer of torch::optim can update them.
///
/// Without sharding, the tensors are the module's parameters. Otherwise they are flat
/// views of the arenas, one for each parameter of which this rank has elements. Not
/// thread-safe.
class OwnShare {
 public:
  /// `arenas` must outlive this object. Throws ConfigError if a bucket does not divide
  /// evenly among the ranks of `comm`.
  OwnShare(ModelArenas& arenas, Sharding kind, const Communicator& comm);

  /// Returns the tensors, with the names of their parameters.
  const std::vector<NamedTensor>& tensors() const {
    return tensors_;
  }
  /// Returns the elements of each tensor among the elements of its parameter, in the
  /// order of the parameter's memory.
  const std::vector<StatePart>& parts() const {
    return parts_;
  }
  /// Returns the elements of the arenas that this rank updates, with padding.
  const std::vector<ArenaRange>& ranges() const {
    return ranges_;
  }

  /// Throws ConfigError if the .grad of a tensor is no longer a view of the gradient
  /// arena.
  void check_attached() const;

  /// Sets the gradients of other ranks' shares to zero.
  void clear_other_gradients();

 private:
  void add_parts_of(const Bucket& bucket, const ArenaRange& part);

  ModelArenas& arenas_;
  bool sharded_;
  std::vector<NamedTensor> tensors_;
  std::vector<StatePart> parts_;
  // With sharding, the gradients of `tensors_` in the arena.
  std::vector<at::Tensor> gradients_;
  std::vector<ArenaRange> ranges_;
};

}  // namespace tandem

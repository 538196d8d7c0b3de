#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/arena.h"

namespace tandem {

/// Whose training has converged: a rank's has when an epoch's loss improves by less
/// than `min_delta`. Ranks that train alone converge alone, and then only take part in
/// what the others do together; the run ends when all have.
class Convergence {
 public:
  /// `min_delta` 0: never. `reads`: whether this rank trains on samples.
  Convergence(Communicator& comm, double min_delta, bool reads);

  bool wanted() const {
    return min_delta_ > 0;
  }

  /// This rank's mean loss of an epoch. Collective. True when this rank has just
  /// converged.
  bool note(double loss);

  bool mine() const;
  bool some() const;
  bool all() const;

  /// What a checkpoint keeps of it: the tensors are this object's own.
  std::vector<NamedTensor> state() const {
    return {{"convergence", values_}};
  }

 private:
  double* values() const {
    return values_.data_ptr<double>();
  }

  Communicator& comm_;
  double min_delta_;
  bool reads_;
  // Float64: the loss of the epoch before, and whether this, some, all ranks have
  // converged.
  at::Tensor values_;
};

}  // namespace tandem

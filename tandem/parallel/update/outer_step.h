#pragma once

#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// The outer optimizer of DiLoCo, for ranks that train alone and average their
/// parameters from time to time: SGD with Nesterov momentum, as torch.optim.SGD. Its
/// gradient is the difference between the base, which is the result of the last step,
/// and the average.
///
/// Only trainable parameters change. All ranks have equal state. Not thread-safe.
///
/// Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of
/// Language Models", 2023.
class OuterStep {
 public:
  /// `parameters` must outlive this object.
  OuterStep(Arena& parameters, double lr, double momentum);

  /// Makes the parameters the base of the first step, unless there is a base. Call it
  /// before ranks train, when their parameters are equal.
  void begin();

  /// Replaces the parameters, which are the average of all ranks, by the result of the
  /// step.
  void step();

  /// Returns the tensors to save and to load, such as "outer_momentum/fc1.weight".
  std::vector<NamedTensor> state() const;

 private:
  Arena& parameters_;
  double lr_;
  double momentum_;
  Arena base_;
  Arena velocity_;
  // One int64: 1 if `base_` is set, otherwise 0.
  at::Tensor has_base_;
};

}  // namespace tandem

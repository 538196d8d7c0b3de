#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// While this object exists, calls a function each time autograd has written a
/// parameter's gradient. Each backward makes one call per parameter on which the loss
/// depends, in the thread that runs backward.
///
/// Source: torch/csrc/distributed/c10d/reducer.cpp, which uses the same hooks.
class GradientHooks {
 public:
  /// Adds the hooks, which call `written(slot)`. `slot` is the index of the parameter's
  /// slot in the arenas' layout.
  GradientHooks(ModelArenas& arenas, std::function<void(size_t slot)> written);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::function<void(size_t)> written_;
  // Functions that remove the hooks.
  std::vector<std::function<void()>> removals_;
};

/// Calls `call` in each backward, just before the function that computed `tensor` runs
/// backward. Has no effect if autograd did not compute `tensor`.
void before_backward(const at::Tensor& tensor, std::function<void()> call);

}  // namespace tandem

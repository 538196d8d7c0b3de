#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// Checks that a module still is what its arenas were made of.
///
/// A parameter that was moved to another dtype loses autograd's node, and with it its
/// GradientHooks. So this puts hooks on the tensors, which stay: a backward that
/// reaches a moved parameter throws what check() throws.
class ModuleWatch {
 public:
  /// `arenas` outlive it.
  explicit ModuleWatch(ModelArenas& arenas);
  ~ModuleWatch();
  ModuleWatch(const ModuleWatch&) = delete;
  ModuleWatch& operator=(const ModuleWatch&) = delete;

  /// How to list the module's current parameters and buffers, in order of registration.
  /// Without it, check() cannot see which ones were added or replaced.
  void list_by(std::function<std::vector<NamedTensor>()> list) {
    list_ = std::move(list);
  }

  /// Throws ConfigError that names the first parameter or buffer that was moved,
  /// replaced, added, removed, or whose requires_grad is not what the arenas were made
  /// for.
  void check() const;

 private:
  ModelArenas& arenas_;
  std::function<std::vector<NamedTensor>()> list_;
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
};

}  // namespace tandem

#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "tandem/core/arena.h"

namespace tandem {

/// Checks that a module still has the tensors with which its arenas were constructed.
///
/// If a parameter is converted to another dtype, GradientHooks for the parameter are
/// lost, because they belong to its autograd node. Hooks on the tensor remain, so
/// ModuleWatch uses hooks on tensors. A backward that reaches a moved or converted
/// parameter throws the error of check().
class ModuleWatch {
 public:
  /// Adds hooks to the parameters in `arenas`, which must outlive this object. `list`
  /// returns the module's current parameters and buffers, in order of registration. If
  /// `list` is empty, check() does not detect added or replaced tensors.
  ModuleWatch(ModelArenas& arenas, std::function<std::vector<NamedTensor>()> list);
  ~ModuleWatch();
  ModuleWatch(const ModuleWatch&) = delete;
  ModuleWatch& operator=(const ModuleWatch&) = delete;

  /// Throws ConfigError with the name of the first parameter or buffer that was moved,
  /// replaced, added or removed, or whose requires_grad changed.
  void check() const;

 private:
  ModelArenas& arenas_;
  std::function<std::vector<NamedTensor>()> list_;
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
};

}  // namespace tandem

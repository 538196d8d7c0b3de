#include "tandem/exec/program/saved_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <mutex>

namespace tandem {

SavedState::SavedState(bool draws) {
  if (!draws) {
    return;
  }
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator_ = generator.get_state();
}

SavedState::~SavedState() {
  const c10::AutoGradMode no_grad(false);
  for (const auto& [tensor, copy] : saved_) {
    tensor.copy_(copy);
  }
  if (!generator_.defined()) {
    return;
  }
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(generator_);
}

}  // namespace tandem

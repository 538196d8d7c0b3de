#pragma once

#include <memory>
#include <string>

#include "tandem/exec/stage_executor.h"

namespace tandem {

/// A second base of DeviceKernels that run layered models without LibTorch's operators.
class DeviceExecutors {
 public:
  /// Throws ConfigError for a model that it cannot run.
  virtual std::unique_ptr<StageExecutor> make_executor(
      Model& model, ModelArenas& arenas, const StageOptions& options) const = 0;

  /// Why it cannot, in a few words; "" when it can.
  virtual std::string obstacle(
      const Model& model, const ModelArenas& arenas,
      const StageOptions& options) const = 0;

 protected:
  ~DeviceExecutors() = default;
};

}  // namespace tandem

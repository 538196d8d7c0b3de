#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tandem/exec/stage_executor.h"
#include "tandem/kernels/cuda/stream.h"

namespace tandem {

/// Runs a layered model as kernels of kernels/cuda, ten in a step of document 003's,
/// in float32 (with tf32 its products, with bf16 those of
/// training) or float64. A step's
/// memory is taken when a size of batch first comes and then used again, and nothing is
/// read back. Loss weight and scale are those of forward's context. `current_stream`:
/// LibTorch's own on the device, asked for each pass.
///
/// Throws ConfigError for a model that it cannot run.
std::unique_ptr<StageExecutor> make_cuda_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options,
    std::function<cuda::Stream()> current_stream);

/// Why it cannot, in a few words; "" when it can.
std::string cuda_obstacle(
    const Model& model, const ModelArenas& arenas, const StageOptions& options);

}  // namespace tandem

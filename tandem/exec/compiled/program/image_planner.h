#pragma once

#include <memory>

#include "tandem/exec/program/program.h"

namespace tandem {

/// Returns a planner that computes convolutions, batch norms and max pools of images in
/// float32 by the operations of the compiled executor (exec/compiled/operation.h), with
/// a ReLU after them. Their values stay in layouts of oneDNN: operators that compute
/// each element separately run in these layouts, and other operators on copies in
/// row-major order. onednn_obstacle() must be "".
[[nodiscard]] std::unique_ptr<CallPlanner> plan_image_kernels(const RecordedStep& step);

}  // namespace tandem

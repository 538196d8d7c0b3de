#pragma once

#include "tandem/formats/onnx_file.h"
#include "tandem/train/checkpoint_model.h"

namespace tandem {

/// Returns the ONNX model (graph/onnx.h) of a checkpoint, in float32, because ONNX
/// Runtime has no convolutions in float64. The model's metadata describes the input
/// and the output (docs/guide/networks.md).
///
/// If `normalizes` is true, the model normalizes its input, so it accepts raw samples.
///
/// `loaded` is a result of load_checkpoint_graph(). Throws the errors of onnx_model().
/// Throws ConfigError if `normalizes` is true and the inputs are indices.
[[nodiscard]] OnnxModel onnx_export(const CheckpointModel& loaded, bool normalizes);

}  // namespace tandem

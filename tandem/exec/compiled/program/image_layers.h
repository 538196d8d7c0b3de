#pragma once

#include <string>
#include <vector>

#include "tandem/exec/compiled/bound_layers.h"
#include "tandem/exec/compiled/program/call_reader.h"
#include "tandem/exec/program/recorded_step.h"

namespace tandem {

/// Calls of a recording that a kernel for images computes: the forward call of a
/// convolution, a batch norm or a pool, its backward call, and a ReLU after it.
struct ImageLayer {
  FusedLayer fused;
  // Tensors that the kernel reads, and gradients that it adds to the arena or writes
  // into memory of its own.
  LayerTensors tensors;
  // True: the gradients of the parameters are added to tensors in the arena.
  bool accumulates = false;
  size_t forward = 0;
  RecordedId input = kNoTensor;
  RecordedId output = kNoTensor;

  // The backward call; -1 if there is none.
  int64_t backward = -1;
  RecordedId grad_output = kNoTensor;
  RecordedId grad_input = kNoTensor;
  // Results of the backward call for gradients in memory of the kernel.
  RecordedId grad_weight = kNoTensor;
  RecordedId grad_bias = kNoTensor;

  // Other calls that the kernel computes.
  std::vector<size_t> absorbed;
  bool uses_winograd = false;
  // True: an average pool, with the window of a max pool in `fused`.
  bool is_average = false;

  /// Returns a description such as "convolution 3 x 3, Winograd + ReLU".
  [[nodiscard]] std::string text() const;
};

/// Returns the layers of a step, in order of their forward calls. If backward makes a
/// forward call again to recompute values, both calls are layers, and the backward call
/// belongs to the later layer.
[[nodiscard]] std::vector<ImageLayer> image_layers_in(const RecordedStep& step);

}  // namespace tandem

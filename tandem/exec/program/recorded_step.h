#pragma once

#include <vector>

#include "tandem/graph/call_recorder.h"

namespace tandem {

/// A recorded pass, forward and possibly backward, for inputs of fixed sizes.
struct RecordedStep {
  Recording recording;
  // Tensors that the caller sets before the forward pass. A tensor that no call reads
  // is part of the recording, too.
  std::vector<RecordedId> inputs;
  // Gradient at which backward starts, which the caller sets; kNoTensor without a
  // backward pass.
  RecordedId initial_gradient = kNoTensor;
  // Tensors that exist after the pass, forward's before backward's; kNoTensor for a
  // result that the pass does not have.
  std::vector<RecordedId> results;

  /// Returns whether the step has a backward pass.
  bool has_backward() const {
    return recording.calls.size() > recording.forward_calls;
  }
};

}  // namespace tandem

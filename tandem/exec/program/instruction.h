#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

#include "tandem/core/dropout.h"
#include "tandem/graph/call_recorder.h"

namespace tandem {

/// The tensors of a program while it runs.
struct ProgramState {
  // By RecordedId; undefined if the tensor does not exist now.
  std::vector<at::Tensor> tensors;
  SampleContext samples;
  // Version of the parameters. Packed copies of an older version are stale.
  int64_t parameters_version = 0;
};

/// A step of a program: a call of LibTorch, a kernel or a change of layout.
struct Instruction {
  // Such as "aten::addmm" or "convolution 3 x 3, Winograd".
  std::string name;
  std::function<void(ProgramState&)> run;
  // Tensors of ProgramState that the instruction reads, and tensors that it sets.
  std::vector<RecordedId> reads;
  std::vector<RecordedId> writes;
  // Index in Recording::layers.
  size_t layer = 0;
};

/// Returns the instruction that makes a recorded call. `call` must outlive it.
[[nodiscard]] Instruction instruction_of(const RecordedCall& call);

}  // namespace tandem

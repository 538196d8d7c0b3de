#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/config/options/setting.h"
#include "tandem/model/layers.h"

namespace tandem {

struct FusedLayer;
struct LayerTensors;
class NodeReader;
struct OnednnContext;
class OnednnOp;

using MakeOnednnOp = std::unique_ptr<OnednnOp>(
    const FusedLayer& fused, const LayerTensors& tensors, const OnednnContext& context);

/// Type of an operation's output if products are in bfloat16.
enum class Bf16Output { bf16, fp32, as_input };

/// Kernel of a kind of layer in the compiled executor. A source in ops/ defines
/// kernel_row(KindTag<kind>), which returns the row. This header does not include
/// oneDNN.
struct KernelRow {
  LayerKind kind;
  // ATen operators that the kernel computes, without overloads.
  std::vector<std::string> operators;
  MakeOnednnOp* make;
  // Reads the arguments of an operator. Null if it has only an input.
  void (*read)(NodeReader& reader) = nullptr;
  Bf16Output output = Bf16Output::as_input;
};

/// Returns the rows of all kinds of layers.
const std::vector<KernelRow>& kernel_rows();

}  // namespace tandem

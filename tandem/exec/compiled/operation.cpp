#include "tandem/exec/compiled/operation.h"

#include "tandem/config/options/setting.h"

namespace tandem {

std::unique_ptr<OnednnOp> make_onednn_op(
    const FusedLayer& fused, const LayerTensors& tensors,
    const OnednnContext& context) {
  return context.numerics.rounding == Rounding::none
             ? make_plain_onednn_op(fused, tensors, context)
             : make_rounded_op(fused, tensors, context);
}

std::unique_ptr<OnednnOp> make_plain_onednn_op(
    const FusedLayer& fused, const LayerTensors& tensors,
    const OnednnContext& context) {
  return row_of_kind(kernel_rows(), fused.layer.kind).make(fused, tensors, context);
}

bool has_bf16_output(const FusedLayer& fused) {
  const Bf16Output output = row_of_kind(kernel_rows(), fused.layer.kind).output;
  return output == Bf16Output::bf16 ||
         (output == Bf16Output::as_input && fused.bf16_input);
}

}  // namespace tandem

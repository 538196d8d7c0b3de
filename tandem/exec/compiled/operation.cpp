#include "tandem/exec/compiled/operation.h"

#include "tandem/config/options/setting.h"

namespace tandem {

namespace {

// Type of an operation's output if products are in bfloat16.
enum class Bf16Output { bf16, fp32, as_input };

struct OnednnRow {
  LayerKind kind;
  MakeOnednnOp* make;
  Bf16Output output = Bf16Output::as_input;
};

std::unique_ptr<OnednnOp> make_conv2d(
    const FusedLayer& fused, const LayerTensors& tensors,
    const OnednnContext& context) {
  MakeOnednnOp* const make = fits_small_convolution(fused)
                                 ? &make_onednn_small_convolution
                             : fits_winograd(fused, context) ? &make_onednn_winograd
                                                             : &make_onednn_convolution;
  return make(fused, tensors, context);
}

constexpr OnednnRow kOnednnRows[] = {
    {LayerKind::conv2d, &make_conv2d, Bf16Output::bf16},
    {LayerKind::linear, &make_onednn_linear, Bf16Output::fp32},
    {LayerKind::batch_norm2d, &make_onednn_batch_norm},
    {LayerKind::relu, &make_onednn_relu},
    {LayerKind::max_pool2d, &make_onednn_max_pool},
    {LayerKind::dropout, &make_onednn_dropout},
    {LayerKind::dropout2d, &make_onednn_dropout},
    {LayerKind::flatten, &make_onednn_flatten},
    {LayerKind::log_softmax, &make_onednn_log_softmax, Bf16Output::fp32},
};

}  // namespace

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
  return row_of_kind(kOnednnRows, fused.layer.kind).make(fused, tensors, context);
}

bool has_bf16_output(const FusedLayer& fused) {
  const Bf16Output output = row_of_kind(kOnednnRows, fused.layer.kind).output;
  return output == Bf16Output::bf16 ||
         (output == Bf16Output::as_input && fused.bf16_input);
}

}  // namespace tandem

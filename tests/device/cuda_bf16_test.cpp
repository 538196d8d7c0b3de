// The executor of kernels for GPUs in bf16 and tf32, against autograd with the same
// roundings.

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max_pool2d.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tandem/model/dropout.h"
#include "tests/device/cuda_rig.h"

namespace tandem::cuda_bf16_test {

// What the layers of a model compute in training where convolutions and linear layers
// round what they multiply. Plain bf16 of LibTorch would round sums too, and pools and
// ReLUs would pass gradients elsewhere.
class RoundedLayers {
 public:
  RoundedLayers(const Model& model, const Batch& batch, const StepContext& context)
      : layers_(*model.layers()),
        samples_{
            context.seed, context.epoch, batch.first_position, batch.position_stride} {
    for (const auto& list : {model.parameters(), model.buffers()}) {
      for (const auto& named : list) {
        tensors_[named.name] = named.tensor;
      }
    }
  }

  at::Tensor forward(at::Tensor x) const {
    for (const auto& layer : layers_) {
      x = apply(layer, x);
    }
    return x;
  }

 private:
  static at::Tensor rounded(const at::Tensor& x) {
    return x.to(at::kBFloat16).to(x.scalar_type());
  }

  at::Tensor apply(const Layer& layer, const at::Tensor& x) const {
    const auto of = [&](const char* name) {
      return tensors_.at(layer.name + "." + name);
    };
    switch (layer.kind) {
      case LayerKind::conv2d:
        return at::conv2d(
            rounded(x), rounded(of("weight")), of("bias"), 1, layer.padding);
      case LayerKind::linear:
        return at::linear(rounded(x), rounded(of("weight")), of("bias"));
      case LayerKind::batch_norm2d:
        of("num_batches_tracked").add_(1);
        return at::batch_norm(
            x, of("weight"), of("bias"), of("running_mean"), of("running_var"), true,
            0.1, 1e-5, false);
      case LayerKind::relu:
        return x.relu();
      case LayerKind::max_pool2d:
        return at::max_pool2d(x, 2);
      case LayerKind::flatten:
        return x.flatten(1);
      case LayerKind::log_softmax:
        return at::log_softmax(x, 1);
      default:
        return x * mask(layer, x);
    }
  }

  at::Tensor mask(const Layer& layer, const at::Tensor& x) const {
    const bool whole = layer.kind == LayerKind::dropout2d && x.dim() == 4;
    const int64_t elements = whole ? x.size(1) : x[0].numel();
    const auto mask =
        dropout_mask(samples_, layer.place, x.size(0), elements, layer.p, at::kFloat);
    return whole ? mask.view({x.size(0), x.size(1), 1, 1}) : mask.view(x.sizes());
  }

  std::vector<Layer> layers_;
  SampleContext samples_;
  std::map<std::string, at::Tensor> tensors_;
};

class CudaBf16Model : public testing::TestWithParam<Case> {
 protected:
  static constexpr Arithmetic kBf16{"bf16", at::kFloat, Precision::bf16, 1e-2};
};

TEST_P(CudaBf16Model, StepsRoundWhatIsMultiplied) {
  Pair pair(GetParam(), kBf16);
  const auto part = batch_of(GetParam(), 0, 5);
  const auto context = context_of(true);
  const auto found = pair.cuda.step(part, context).values();
  const auto output =
      RoundedLayers(*pair.eager.model, part, context).forward(part.inputs);
  const auto loss = summed_loss(GetParam().loss, output, part.targets);
  (loss * context.loss_weight).backward();
  const auto expected = loss.item<double>();
  EXPECT_NEAR(found.loss, expected, 1e-4 * std::abs(expected));
  pair.expect_same_state();
  // Not float32.
  Pair exact(GetParam(), kFp32);
  EXPECT_NE(found.loss, exact.cuda.step(part, context).values().loss);
}

TEST_P(CudaBf16Model, EvaluationIsFloat32s) {
  Pair pair(GetParam(), kBf16);
  pair.tolerance = kFp32.tolerance;
  const auto part = batch_of(GetParam(), 0, 5);
  const auto found = pair.cuda.executor->forward(0, part, context_of(false));
  const auto expected = pair.eager.executor->forward(0, part, context_of(false));
  pair.expect_close(found.output, expected.output, "output");
  pair.expect_sums(found.sums, expected.sums);
}

// Of a model without pools and ReLUs, which float32 does not pass elsewhere.
TEST(CudaTf32, RoundsProductsOfTrainingAndEvaluation) {
  Pair pair(kModels[3], {"tf32", at::kFloat, Precision::tf32, 1e-3});
  Pair exact(kModels[3], kFp32);
  const auto part = batch_of(kModels[3], 0, 5);
  const auto output = [&](Rig& rig) {
    return rig.executor->forward(0, part, context_of(false)).output.cpu();
  };
  pair.expect_close(output(pair.cuda), output(pair.eager), "output");
  EXPECT_FALSE(output(pair.cuda).equal(output(exact.cuda)));
  pair.each([&](Rig& rig) { rig.step(part, context_of(true)); });
  exact.cuda.step(part, context_of(true));
  pair.expect_same_state();
  EXPECT_FALSE(pair.cuda.arenas.gradients().segment(0).cpu().equal(
      exact.cuda.arenas.gradients().segment(0).cpu()));
}

INSTANTIATE_TEST_SUITE_P(
    Models, CudaBf16Model, testing::ValuesIn(kModels),
    [](const testing::TestParamInfo<Case>& row) {
      return std::string(row.param.name);
    });

}  // namespace tandem::cuda_bf16_test

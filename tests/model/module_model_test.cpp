#include "tandem/model/module_model.h"
#include "tandem/formats/tensor_list.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "tests/graph/graphs.h"

namespace tandem::module_model_test {

using testing::ElementsAre;
using testing::IsEmpty;

namespace nn = torch::nn;

struct BlockImpl : nn::Module {
  BlockImpl() {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(1, 2, 3).bias(false)));
    norm = register_module("norm", nn::BatchNorm2d(2));
  }
  at::Tensor forward(const at::Tensor& x) {
    return norm(conv(x)).flatten(1);
  }
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d norm{nullptr};
};
TORCH_MODULE(Block);

TEST(ModuleModel, NamesParametersAndBuffersLikeStateDict) {
  const auto model = make_module_model(nn::Sequential(Block(), nn::Linear(8, 5)));
  EXPECT_THAT(
      tensor_names(model->parameters()),
      ElementsAre(
          "0.conv.weight", "0.norm.weight", "0.norm.bias", "1.weight", "1.bias"));
  EXPECT_THAT(
      tensor_names(model->buffers()),
      ElementsAre(
          "0.norm.running_mean", "0.norm.running_var", "0.norm.num_batches_tracked"));
}

TEST(ModuleModel, SkipsUndefinedBuffers) {
  const auto model = make_module_model(nn::Sequential(nn::BatchNorm2d(
      nn::BatchNorm2dOptions(2).affine(false).track_running_stats(false))));
  EXPECT_THAT(model->parameters(), IsEmpty());
  EXPECT_THAT(model->buffers(), IsEmpty());
}

TEST(ModuleModel, SharesTheModuleAndSetsItsMode) {
  const auto block = std::make_shared<BlockImpl>();
  const auto model = make_module_model(block);
  EXPECT_TRUE(model->parameters()[0].tensor.is_same(block->conv->weight));
  const auto x = at::randn({4, 1, 4, 4});
  const auto mean = block->norm->running_mean.clone();

  const auto evaluated = model->forward(x, in_mode(false));
  EXPECT_FALSE(block->norm->is_training());
  EXPECT_TRUE(block->norm->running_mean.equal(mean));

  EXPECT_FALSE(model->forward(x, in_mode(true)).equal(evaluated));
  EXPECT_TRUE(block->norm->is_training());
  EXPECT_FALSE(block->norm->running_mean.equal(mean));
}

}  // namespace tandem::module_model_test

// The six models against the tutorials' classes in Python, with Debian's PyTorch 1.13.
// The comment above each table has the Python code.

#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/core/arena.h"
#include "tandem/model/model.h"
#include "tests/core/expect.h"
#include "tests/graph/graphs.h"

namespace tandem::zoo_test {

using testing::HasSubstr;

using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

ModelKind kind_of(const std::string& name) {
  return parse_choice<ModelKind>("test", name);
}

// Returns the rows of all models except `custom`.
std::vector<ModelRow> made_models() {
  std::vector<ModelRow> made;
  for (const auto& row : Choices<ModelKind>::rows) {
    if (is_built_in(row.value) && !is_alias(row)) {
      made.push_back(row);
    }
  }
  return made;
}

// Images of 28 x 28 pixels, which the loader pads for some models.
ModelOptions options_for(const std::string& name, uint64_t seed = 0) {
  const int64_t side = 28 + 2 * row_of(kind_of(name)).pad;
  ModelOptions options;
  options.input = {1, side, side};
  options.seed = seed;
  return options;
}

Shapes shapes_of(const std::vector<NamedTensor>& tensors) {
  Shapes shapes;
  for (const auto& [name, tensor] : tensors) {
    shapes.emplace_back(name, tensor.sizes().vec());
  }
  return shapes;
}

struct ModelCase {
  std::string name;
  int64_t num_parameters;
  LossKind loss;
};

// sum(v.numel() for v in model.parameters())
const std::vector<ModelCase>& model_cases() {
  static const std::vector<ModelCase> cases = {
      {"net", 1'199'882, LossKind::nll},
      {"convnet", 300'426, LossKind::nll},
      {"net5x5", 12'434, LossKind::cross_entropy},
      {"simplenet", 7'850, LossKind::cross_entropy},
      {"lenet3x3", 315'146, LossKind::cross_entropy},
      {"convnet_bn", 29'034, LossKind::cross_entropy}};
  return cases;
}

TEST(Zoo, ModelsHaveTheParametersAndTheLossOfPython) {
  ASSERT_EQ(made_models().size(), model_cases().size());
  for (const auto& expected : model_cases()) {
    SCOPED_TRACE(expected.name);
    const auto model = make_model(kind_of(expected.name), options_for(expected.name));
    int64_t count = 0;
    for (const auto& [name, tensor] : model->parameters()) {
      count += tensor.numel();
      EXPECT_TRUE(tensor.requires_grad()) << name;
    }
    EXPECT_EQ(count, expected.num_parameters);
    EXPECT_EQ(row_of(kind_of(expected.name)).loss, expected.loss);
    EXPECT_EQ(model->buffers().empty(), expected.name != "convnet_bn");
  }
}

TEST(Zoo, BatchNormsBuffersHavePythonsNamesAndShapes) {
  const auto model = make_model(ModelKind::convnet_bn, options_for("convnet_bn"));
  const Shapes expected = {
      {"layer1.1.running_mean", {16}},      {"layer1.1.running_var", {16}},
      {"layer1.1.num_batches_tracked", {}}, {"layer2.1.running_mean", {32}},
      {"layer2.1.running_var", {32}},       {"layer2.1.num_batches_tracked", {}}};
  EXPECT_EQ(shapes_of(model->buffers()), expected);
  EXPECT_EQ(model->buffers()[2].tensor.scalar_type(), at::kLong);
}

TEST(Zoo, DropoutsEqualTheTutorials) {
  using Dropouts = std::vector<std::pair<LayerKind, double>>;
  const std::vector<std::pair<std::string, Dropouts>> expected = {
      {"net", {{LayerKind::dropout, 0.25}, {LayerKind::dropout, 0.5}}},
      {"convnet", {{LayerKind::dropout2d, 0.1}, {LayerKind::dropout2d, 0.25}}},
      {"net5x5", {{LayerKind::dropout2d, 0.2}}},
      {"simplenet", {}},
      {"lenet3x3", {}},
      {"convnet_bn", {}}};
  for (const auto& [name, dropouts] : expected) {
    Dropouts found;
    for (const auto& layer : layers_of(kind_of(name), options_for(name))) {
      if (layer.p > 0) {
        found.emplace_back(layer.kind, layer.p);
      }
    }
    EXPECT_EQ(found, dropouts) << name;
  }
}

// torch.manual_seed(seed); model = Class(); h = hashlib.sha256()
// for k, v in model.named_parameters():
//     h.update(k.encode() + b"\0" + v.detach().numpy().tobytes())
TEST(Zoo, InitialWeightsEqualPythonAfterManualSeed) {
  struct Case {
    std::string name;
    uint64_t seed;
    std::string sha256;
  };
  const std::vector<Case> cases = {
      {"net", 0, "258a28f2bba87975f7d597fb9e2523d79ae1bea1163a952afd6c547c65d8635b"},
      {"net", 1234567,
       "773e62bb0953e35383bf247d16d1722cc49b4db5df1aab59e26d2ae83251c32d"},
      {"convnet", 0,
       "a687bd2969be8c9c5c4342158b3b645cdc99282c1a83a64d08b72e97d2d3f78c"},
      {"convnet", 1234567,
       "8de76dca10a458db3b0e1bb5fd5803f75a255755923ceb362b6756be37803b80"},
      {"net5x5", 0, "30ee55b2c9db33ba2425a743d6e8dbe475406c023cbbac57a75940feeeb869eb"},
      {"net5x5", 1234567,
       "34784e48bca741cc582ea140f49f9cc1133dcd0b8a51a1f5213c236f490cf3f8"},
      {"simplenet", 0,
       "19f96af5e32f5f8396ca350372b673989115f5816e1125ee43726c8c96f5b7d2"},
      {"simplenet", 1234567,
       "7d5592ec57df24f93fab2f95b74618b609141f5ea107ab81b936761e4e8f236a"},
      {"lenet3x3", 0,
       "7deab724f585fe4163bf3c877cbc1c858e6bd49f3895851b48796b7bbcedaa65"},
      {"lenet3x3", 1234567,
       "39f56f442f436a68e5263ed52354666c3000dade33bf7a3f4febf4f439cdd5c3"},
      {"convnet_bn", 0,
       "40a92782dc085d160c3aa292be75d971cf1bae998d2ac353a2dbedb8efec5cb4"},
      {"convnet_bn", 1234567,
       "5672463266322b78fcbcf441d5e3ca0a9bf37e89fa79cc74e5267b6446acc837"}};
  for (const auto& [name, seed, sha256] : cases) {
    const auto model = make_model(kind_of(name), options_for(name, seed));
    EXPECT_EQ(ModelArenas(model->parameters(), {}).parameters_sha256(), sha256)
        << name << " " << seed;
  }
}

// torch.manual_seed(1234567); model = Class().double().eval()
// x = torch.linspace(-1, 2, 2 * side * side, dtype=torch.float64).sin()
// model(x.view(2, 1, side, side))[1][:3]
TEST(Zoo, EvaluationOutputsEqualPython) {
  struct Case {
    std::string name;
    std::vector<double> output;
  };
  const std::vector<Case> cases = {
      {"net", {-2.25783281226282, -2.24129157727614, -2.31785375355321}},
      {"convnet", {-2.22422579346096, -2.19603146673958, -2.38875069186219}},
      {"net5x5", {-0.114822312809388, 0.0189140991246714, -0.0739591633002181}},
      {"simplenet", {0.500768704178902, 0.226728564603716, 0.290011586404313}},
      {"lenet3x3", {-0.0900215551284076, 0.011532721049218, 0.0795748707069434}},
      {"convnet_bn", {0.0363721164249101, 0.0231501156165806, -0.304352359627236}}};
  for (const auto& [name, expected] : cases) {
    auto options = options_for(name, 1234567);
    options.dtype = at::kDouble;
    const auto model = make_model(kind_of(name), options);
    const int64_t side = options.input[1];
    const auto x = at::linspace(-1, 2, 2 * side * side, at::kDouble).sin();
    const auto output = model->forward(x.view({2, 1, side, side}), in_mode(false));
    ASSERT_EQ(output.sizes().vec(), (std::vector<int64_t>{2, 10}));
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      EXPECT_NEAR(output[1][index].item<double>(), expected[i], 1e-13) << name;
    }
  }
}

TEST(Zoo, ModelsFitOtherImagesAndClasses) {
  for (const auto& entry : made_models()) {
    ModelOptions options;
    options.input = {3, 20, 26};
    options.num_classes = 7;
    const auto model = make_model(kind_of(entry.name), options);
    const auto output = model->forward(at::zeros({2, 3, 20, 26}), {});
    EXPECT_EQ(output.sizes().vec(), (std::vector<int64_t>{2, 7})) << entry.name;
  }
}

TEST(Zoo, TooSmallImagesAreErrors) {
  // The smallest size that leaves a pixel after all layers, and all smaller sizes.
  const std::vector<std::pair<std::string, int64_t>> smallest = {
      {"net", 6}, {"convnet", 6}, {"net5x5", 20}, {"lenet3x3", 10}, {"convnet_bn", 4}};
  for (const auto& [name, side] : smallest) {
    ModelOptions options;
    options.input = {1, side, 28};
    const auto model = make_model(kind_of(name), options);
    EXPECT_NO_THROW(model->forward(at::zeros({1, 1, side, 28}), {})) << name;
    for (int64_t less = 1; less < side; ++less) {
      options.input = {1, less, 28};
      EXPECT_THAT(
          error_of<ConfigError>(
              [&, &name = name] { return make_model(kind_of(name), options); }),
          HasSubstr("too small"))
          << name << " " << less;
      options.input = {1, 28, less};
      EXPECT_THAT(
          error_of<ConfigError>(
              [&, &name = name] { return make_model(kind_of(name), options); }),
          HasSubstr("too small"))
          << name << " " << less;
    }
  }
}

TEST(Zoo, CustomModelIsAnError) {
  expect_error<ConfigError>(
      [] { return make_model(ModelKind::custom, {}); }, {"examples/custom_model"});
}

}  // namespace tandem::zoo_test

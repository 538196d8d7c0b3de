#include "tandem/model/module_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "tests/parity/python.h"

namespace tandem::module_tree_test {

using testing::ElementsAre;

ModelOptions options_of(ModelKind kind) {
  ModelOptions options;
  options.input[1] += 2 * row_of(kind).pad;
  options.input[2] += 2 * row_of(kind).pad;
  return options;
}

std::string tree_of(ModelKind kind) {
  return module_tree(kind, layers_of(kind, options_of(kind)));
}

// As tutorial 001 prints it.
TEST(ModuleTree, Net5x5IsPrintedAsInTutorial001) {
  EXPECT_EQ(
      tree_of(ModelKind::net5x5),
      "Net(\n"
      "  (dropout): Dropout2d(p=0.2, inplace=False)\n"
      "  (conv1): Conv2d(1, 8, kernel_size=(5, 5), stride=(1, 1))\n"
      "  (conv2): Conv2d(8, 16, kernel_size=(5, 5), stride=(1, 1))\n"
      "  (relu): ReLU()\n"
      "  (fc1): Linear(in_features=64, out_features=120, bias=True)\n"
      "  (fc2): Linear(in_features=120, out_features=10, bias=True)\n"
      ")\n");
}

// The tutorials' networks, with __init__() as in their listings.
constexpr const char* kNetworks = R"(
import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)
print(Net())

class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.cn1 = nn.Conv2d(1, 16, 3, 1)
        self.cn2 = nn.Conv2d(16, 32, 3, 1)
        self.dp1 = nn.Dropout2d(0.10)
        self.dp2 = nn.Dropout2d(0.25)
        self.fc1 = nn.Linear(4608, 64)
        self.fc2 = nn.Linear(64, 10)
print(ConvNet())

class SimpleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(28 * 28, 10)
print(SimpleNet())

class MyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(64 * 6 * 6, 128)
        self.fc2 = nn.Linear(128, 10)
print(MyModel())

class ConvNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.layer1 = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=5, stride=1, padding=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2))
        self.layer2 = nn.Sequential(
            nn.Conv2d(16, 32, kernel_size=5, stride=1, padding=2),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2))
        self.fc = nn.Linear(7*7*32, num_classes)
print(ConvNet())
)";

TEST(ParityModuleTree, MatchesPythonForTheTutorialsNetworks) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const auto printed = checked(run_python({"-c", kNetworks}));
  // Newer PyTorch also prints whether batch norm has a bias.
  const auto expected = std::regex_replace(
      printed.output, std::regex("affine=True, bias=True"), "affine=True");
  EXPECT_EQ(
      tree_of(ModelKind::net) + tree_of(ModelKind::convnet) +
          tree_of(ModelKind::simplenet) + tree_of(ModelKind::lenet3x3) +
          tree_of(ModelKind::convnet_bn),
      expected);
}

TEST(ModuleTree, NamesTheParametersOfEveryModel) {
  for (const auto& choice : choices<ModelKind>()) {
    if (!is_built_in(choice.value)) {
      continue;
    }
    SCOPED_TRACE(choice.name);
    const auto tree = tree_of(choice.value);
    for (const auto& layer : layers_of(choice.value, options_of(choice.value))) {
      const std::string name = layer.name.substr(layer.name.find('.') + 1);
      EXPECT_TRUE(name.empty() || tree.find("(" + name + "): ") != std::string::npos)
          << layer.name;
    }
  }
}

std::vector<std::string> lines_of(ModelKind kind) {
  const auto options = options_of(kind);
  const auto model = make_model(kind, options);
  std::vector<std::string> lines;
  for (const auto& row : summarise(*model->graph())) {
    std::string line = row.name;
    for (size_t i = 1; i < row.output.size(); ++i) {
      line += " " + std::to_string(row.output[i].fixed);
    }
    lines.push_back(line + ": " + std::to_string(row.num_parameters));
  }
  return lines;
}

TEST(ModelSummary, HasTheOutputAndParametersOfEachLayer) {
  EXPECT_THAT(
      lines_of(ModelKind::net),
      ElementsAre(
          "conv1 32 26 26: 320", "relu 32 26 26: 0", "conv2 64 24 24: 18496",
          "relu 64 24 24: 0", "max_pool2d 64 12 12: 0", "dropout 64 12 12: 0",
          "flatten 9216: 0", "fc1 128: 1179776", "relu 128: 0", "dropout 128: 0",
          "fc2 10: 1290", "log_softmax 10: 0"));
  EXPECT_THAT(
      lines_of(ModelKind::convnet_bn),
      ElementsAre(
          "layer1.0 16 28 28: 416", "layer1.1 16 28 28: 32", "relu 16 28 28: 0",
          "max_pool2d 16 14 14: 0", "layer2.0 32 14 14: 12832", "layer2.1 32 14 14: 64",
          "relu 32 14 14: 0", "max_pool2d 32 7 7: 0", "flatten 1568: 0",
          "fc 10: 15690"));
}

}  // namespace tandem::module_tree_test

#include "tandem/graph/pt2.h"
#include "tandem/formats/tensor_list.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/graph/interpreter.h"
#include "tests/core/expect.h"
#include "tests/formats/rewrite_archive.h"
#include "tests/graph/fixtures.h"
#include "tests/scratch.h"

namespace tandem::pt2_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

const Node& node_of(const Graph& graph, const std::string& name) {
  for (const auto& node : graph.nodes) {
    if (node.name == name) {
      return node;
    }
  }
  throw std::runtime_error("no node " + name);
}

// --- networks that PyTorch exported

class Pt2Networks : public testing::TestWithParam<std::string> {};

TEST_P(Pt2Networks, OutputsEqualThoseOfPyTorch) {
  for (const auto& version : kTorchVersions) {
    SCOPED_TRACE(version);
    const Graph graph = read_fixture(GetParam() + "-" + version + ".pt2");
    std::vector<int64_t> shape;
    for (const auto& size : graph.value(graph.input).shape) {
      shape.push_back(size.fixed);
    }
    shape.erase(shape.begin());
    const auto rows = recorded(GetParam(), version)
                          .at("outputs")
                          .get<std::vector<std::vector<double>>>();
    const auto output =
        Interpreter(graph, {}).run(fixture_images(shape, 0), ForwardContext());
    ASSERT_EQ(output.size(0), static_cast<int64_t>(rows.size()));
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t j = 0; j < rows[i].size(); ++j) {
        EXPECT_NEAR(
            output[static_cast<int64_t>(i)][static_cast<int64_t>(j)].item<double>(),
            rows[i][j], 1e-12);
      }
    }
  }
}

// torch.export's order of the inputs depends on its version; state_dict()'s does not.
TEST_P(Pt2Networks, EveryVersionHasTheSameStateAndOperators) {
  const auto facts_of = [](const std::string& version) {
    const Graph graph = read_fixture(GetParam() + "-" + version + ".pt2");
    std::vector<std::string> facts = tensor_names(parameters_of(graph));
    for (const auto& name : tensor_names(buffers_of(graph))) {
      facts.push_back(name);
    }
    for (const auto& node : graph.nodes) {
      if (node.target != "aten::add_") {
        facts.push_back(node.target + " " + node.module);
      }
    }
    return facts;
  };
  const auto newest = facts_of(kTorchVersions.back());
  for (const auto& version : kTorchVersions) {
    EXPECT_EQ(facts_of(version), newest) << version;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, Pt2Networks, testing::ValuesIn(kNetworks),
    [](const auto& instance) { return instance.param; });

// Arenas replace the data of parameters.
TEST(Pt2, ParametersDoNotKeepTheMemoryOfTheirFirstData) {
  for (const char* file : {"net-2.6.0.pt2", "net-2.15.0.pt2"}) {
    SCOPED_TRACE(file);
    const Graph graph = read_fixture(file);
    for (const auto& [name, tensor] : parameters_of(graph)) {
      const auto first = tensor.storage().getWeakStorageImpl();
      at::Tensor(tensor).set_data(tensor.detach().clone());
      EXPECT_TRUE(first.expired()) << name;
    }
  }
}

TEST(Pt2, NumbersNodesOfNetLikeTheBuiltInModel) {
  for (const auto& version : kTorchVersions) {
    const Graph graph = read_fixture("net-" + version + ".pt2");
    std::vector<std::string> nodes;
    for (const auto& node : graph.nodes) {
      nodes.push_back(std::to_string(node.number) + " " + node.target);
    }
    EXPECT_THAT(
        nodes, ElementsAre(
                   "0 aten::conv2d", "1 aten::relu", "2 aten::conv2d", "3 aten::relu",
                   "4 aten::max_pool2d", "5 aten::dropout", "6 aten::flatten",
                   "7 aten::linear", "8 aten::relu", "9 aten::dropout",
                   "10 aten::linear", "11 aten::log_softmax"))
        << version;
  }
}

TEST(Pt2, ReadsShapesArgumentsAndOrigins) {
  const Graph graph = read_fixture("net-2.15.0.pt2");
  EXPECT_EQ(text_of(graph.value(graph.input).shape), "[N, 1, 28, 28]");
  EXPECT_EQ(text_of(graph.value(graph.output).shape), "[N, 10]");
  EXPECT_THAT(
      tensor_names(parameters_of(graph)),
      ElementsAre(
          "conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight",
          "fc1.bias", "fc2.weight", "fc2.bias"));
  for (const auto& [name, tensor] : parameters_of(graph)) {
    EXPECT_TRUE(tensor.requires_grad()) << name;
  }
  const Node& convolution = node_of(graph, "conv2d_1");
  EXPECT_EQ(convolution.module, "conv2");
  EXPECT_THAT(
      convolution.source,
      MatchesRegex("networks.py:[0-9]+: x = F.relu\\(self.conv2\\(x\\)\\)"));
  EXPECT_EQ(node_of(graph, "relu").module, "");
  EXPECT_THAT(
      describe(graph),
      HasSubstr(
          "%conv2d_1: Float[N, 64, 24, 24] = aten::conv2d(%relu, "
          "%p_conv2_weight, %p_conv2_bias, [1, 1], [0, 0], [1, 1], 1) # 2 conv2"));
  // The file omits ceil_mode and others.
  EXPECT_THAT(
      describe(graph),
      HasSubstr("aten::max_pool2d(%relu_1, [2, 2], [], [0, 0], [1, 1], False) # 4"));
}

TEST(Pt2, TiedWeightsHaveAliases) {
  for (const auto& version : kTorchVersions) {
    const Graph graph = read_fixture("tied-" + version + ".pt2");
    std::map<std::string, std::string> aliases;
    for (const auto& alias : graph.aliases) {
      aliases[alias.state_name] = graph.value(alias.value).state_name;
    }
    const std::map<std::string, std::string> expected = {
        {"again.weight", "hidden.weight"},
        {"last.weight", "hidden.weight"},
        {"last.bias", "again.bias"}};
    EXPECT_EQ(aliases, expected) << version;
  }
}

TEST(Pt2, BuffersOutsideOfTheStateDictAreConstants) {
  for (const auto& version : kTorchVersions) {
    const Graph graph = read_fixture("transformer-" + version + ".pt2");
    const auto constant = std::find_if(
        graph.values.begin(), graph.values.end(),
        [](const Value& value) { return value.kind == ValueKind::constant; });
    ASSERT_NE(constant, graph.values.end()) << version;
    EXPECT_EQ(constant->name, "b_wave");
    EXPECT_EQ(constant->state_name, "wave");
    EXPECT_EQ(constant->tensor.sizes().vec(), (std::vector<int64_t>{1, 16, 8}));
    EXPECT_TRUE(buffers_of(graph).empty());
  }
}

TEST(Pt2, SizesOfTheBatchAreArguments) {
  const Graph graph = read_fixture("transformer-2.15.0.pt2");
  EXPECT_THAT(describe(graph), HasSubstr("aten::expand(%p_token, [N, -1, -1], False)"));
  EXPECT_THAT(describe(graph), Not(HasSubstr("sym_size")));
}

// --- files that tandem rejects

struct Rejected {
  const char* file;
  std::vector<std::string> texts;
};

class RejectedPt2 : public testing::TestWithParam<Rejected> {};

TEST_P(RejectedPt2, MessageNamesTheReason) {
  const Scratch scratch;
  const auto path = unpack_fixture(scratch, std::string("bad/") + GetParam().file);
  const auto message = error_of<ConfigError>([&] { std::ignore = read_pt2(path); });
  EXPECT_THAT(message, StartsWith("[model] '" + path + "'"));
  for (const auto& text : GetParam().texts) {
    EXPECT_THAT(message, HasSubstr(text));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, RejectedPt2,
    testing::Values(
        Rejected{"compiled.pt2", {"is a package of AOTInductor"}},
        Rejected{"torchscript.pt", {"is a TorchScript file"}},
        Rejected{"state_dict.pt", {"contains weights but no network"}},
        Rejected{"newer_schema.pt2", {"has version 9 of the schema", "expected 8"}},
        Rejected{
            "evaluation.pt2",
            {"batch_norm", "in evaluation mode",
             "torch.export.export(model.train(), (x,)"}},
        Rejected{
            "fixed_batch.pt2",
            {"has a fixed batch size of 2",
             "dynamic_shapes=({0: torch.export.Dim(\"batch\")},)"}},
        Rejected{"two_inputs.pt2", {"has 2 inputs, expected one tensor"}},
        Rejected{"two_outputs.pt2", {"has 2 outputs, expected one tensor"}},
        Rejected{"decomposed.pt2", {"run_decompositions()"}},
        Rejected{"random.pt2", {"poisson", "bad_networks.py:", "random numbers"}},
        Rejected{"control_flow.pt2", {"bad_networks.py:", "control flow 'cond'"}},
        Rejected{
            "custom_operator.pt2",
            {"bad_networks.py:", "fixtures::twice, which this LibTorch lacks"}}),
    [](const auto& instance) {
      const std::string file = instance.param.file;
      return file.substr(0, file.find('.'));
    });

// --- damaged files

using Change = std::function<void(const std::string& name, std::string& content)>;

// A file whose entries tests change.
class DamagedPt2 : public testing::Test {
 protected:
  // Writes a fixture again, with each entry changed by `change`.
  void rewrite(const std::string& name, const Change& change) const {
    rewrite_archive(unpack_fixture(scratch_, name), path_, change);
  }

  // Replaces the first `from` in the network's JSON.
  void replace(const std::string& from, const std::string& to) const {
    bool found = false;
    rewrite("net-2.15.0.pt2", [&](const std::string& name, std::string& content) {
      const size_t at = content.find(from);
      if (name == "models/model.json" && at != std::string::npos) {
        content.replace(at, from.size(), to);
        found = true;
      }
    });
    ASSERT_TRUE(found) << from;
  }

  template <typename Expected>
  std::string error() const {
    return error_of<Expected>([&] { std::ignore = read_pt2(path_); });
  }

  const Scratch scratch_;
  const std::string path_ = scratch_ / "model.pt2";
};

TEST_F(DamagedPt2, UnchangedFilesAreRead) {
  rewrite("net-2.15.0.pt2", [](const std::string&, std::string&) {});
  EXPECT_EQ(read_pt2(path_).nodes.size(), 12u);
}

TEST_F(DamagedPt2, TruncatedFilesAreRejected) {
  for (const char* name : {"tied-2.15.0.pt2", "tied-2.8.0.pt2", "tied-2.6.0.pt2"}) {
    const std::string whole = fixture(name);
    for (size_t size = 0; size < whole.size(); size += 61) {
      replace_file(path_, whole.substr(0, size));
      EXPECT_THAT(error<DataError>(), StartsWith("[model] '" + path_ + "' is "))
          << size;
    }
  }
}

TEST_F(DamagedPt2, MissingAndOtherFilesAreRejected) {
  EXPECT_THAT(error<DataError>(), HasSubstr("No such file"));
  for (const char* content : {"", "P", "import torch", "PK\3\4"}) {
    replace_file(path_, std::string(content));
    EXPECT_THAT(error<DataError>(), HasSubstr("[model] '" + path_ + "' is"));
  }
}

TEST_F(DamagedPt2, WeightsOfAnotherSizeAreRejected) {
  for (const int change : {-1, 1, -4}) {
    rewrite("tied-2.15.0.pt2", [&](const std::string& name, std::string& content) {
      if (name == "data/weights/weight_0") {
        content.resize(content.size() + static_cast<size_t>(change));
      }
    });
    EXPECT_THAT(
        error<DataError>(),
        HasSubstr("a tensor 'encode.weight' whose size does not fit its bytes"))
        << change;
  }
}

// A value needs up to 50 times as much memory as its text.
TEST_F(DamagedPt2, TextsWithTooManyValuesAreRejected) {
  rewrite("net-2.15.0.pt2", [](const std::string& name, std::string& content) {
    if (name == "models/model.json") {
      std::string list = "[0";
      for (int i = 0; i < 2'000'000; ++i) {
        list += ",0";
      }
      content = list + "]";
    }
  });
  EXPECT_THAT(error<ConfigError>(), HasSubstr("values in its JSON"));
}

TEST_F(DamagedPt2, DeeplyNestedTextsAreRejected) {
  rewrite("net-2.15.0.pt2", [](const std::string& name, std::string& content) {
    if (name == "models/model.json") {
      content = std::string(100'000, '[');
    }
  });
  EXPECT_THAT(error<DataError>(), HasSubstr("nested too deeply"));
}

TEST_F(DamagedPt2, InvalidJsonIsRejected) {
  replace("{\"graph_module\"", "{graph_module");
  EXPECT_THAT(error<DataError>(), HasSubstr("JSON that is invalid at byte"));
  replace("\"graph_module\"", "\"another\"");
  EXPECT_THAT(error<DataError>(), HasSubstr("key 'graph_module' not found"));
}

// torch 2.6 writes numbers that are not JSON.
TEST_F(DamagedPt2, InfinitiesAreRead) {
  for (const char* number : {"-Infinity", "\"-Infinity\""}) {
    replace("\"as_float\": 0.25", std::string("\"as_float\": ") + number);
    const Graph graph = read_pt2(path_);
    EXPECT_EQ(
        node_of(graph, "dropout").arguments[1].constant.toDouble(),
        -std::numeric_limits<double>::infinity());
  }
  replace("\"as_float\": 0.25", "\"as_float\": \"Infinite\"");
  EXPECT_THAT(error<DataError>(), HasSubstr("is damaged"));
}

TEST_F(DamagedPt2, UnknownKindsOfArgumentsAreRejected) {
  const std::string argument = "\"start_dim\", \"arg\": ";
  replace(
      argument + "{\"as_int\": 1}",
      argument + "{\"as_complex\": {\"real\": 1.0, \"imag\": 0.0}}");
  EXPECT_THAT(error<ConfigError>(), HasSubstr("of the kind 'as_complex'"));
  replace("{\"as_ints\": [2, 2]}", "{\"as_ints\": [2, 2], \"as_int\": 2}");
  EXPECT_THAT(error<DataError>(), HasSubstr("is damaged"));
}

TEST_F(DamagedPt2, UnknownArgumentsAndOperatorsNameTheLine) {
  replace("\"name\": \"kernel_size\"", "\"name\": \"kernel\"");
  expect_parts(
      error<ConfigError>(),
      {"max_pool2d (networks.py:", "an argument 'kernel', which this LibTorch lacks"});
  replace("aten.max_pool2d.default", "aten.max_pool2d_of_tomorrow.default");
  expect_parts(
      error<ConfigError>(),
      {"max_pool2d (networks.py:",
       "the operator aten::max_pool2d_of_tomorrow, which this LibTorch lacks"});
}

TEST_F(DamagedPt2, SizesThatAreNotLinearAreRejected) {
  const std::string symbol = "Symbol('s77', positive=True, integer=True)";
  replace(
      "\"expr_str\": \"" + symbol, "\"expr_str\": \"Mul(Integer(2), " + symbol + ")");
  EXPECT_THAT(
      error<ConfigError>(),
      HasSubstr("an input of shape [Mul(Integer(2), s77), ...], expected the number"));
  rewrite("net-2.15.0.pt2", [&](const std::string& name, std::string& content) {
    if (name == "models/model.json") {
      const size_t at = content.rfind(symbol);
      content.replace(at, symbol.size(), "Mul(" + symbol + ", " + symbol + ")");
    }
  });
  EXPECT_THAT(
      error<ConfigError>(), HasSubstr("the size Mul(s77, s77), expected a linear"));
}

}  // namespace tandem::pt2_test

// Executors of models that recompute values in backward, against the same executors
// without recomputation.

#include <ATen/ops/arange.h>
#include <gmock/gmock.h>

#include "tandem/base/error.h"
#include "tandem/core/trace.h"
#include "tandem/exec/recompute/kept_values.h"
#include "tandem/graph/segments.h"
#include "tandem/model/graph_model.h"
#include "tests/core/expect.h"
#include "tests/exec/fixture_networks.h"
#include "tests/exec/rig.h"
#include "tests/graph/fixtures.h"
#include "tests/graph/graphs.h"

namespace tandem::recompute_test {

using testing::Contains;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr MakeExecutor kExecutors[] = {
    &make_eager_executor, &make_plain, &make_with_kernels};

// Returns a network that recomputes segments of `every` layers; none if it is 0.
std::unique_ptr<Model> network(const std::string& name, int64_t every) {
  auto model = fixture_network(name);
  if (every > 0) {
    const Graph& whole = *model->graph();
    model->recompute(recomputable(whole, segments_of(whole, every, true)));
  }
  return model;
}

void update(Rig& rig) {
  const c10::AutoGradMode no_grad(false);
  for (const auto& tensor : rig.arenas.tensors()) {
    if (tensor.grad().defined()) {
      tensor.add_(tensor.grad(), -0.1);
    }
  }
  rig.executor->parameters_changed({});
  rig.executor->zero_gradients();
}

// Trains with batches of two sizes and two micro-batches in flight.
std::vector<at::Tensor> train(Rig& rig) {
  std::vector<at::Tensor> results;
  for (int64_t step = 0; step < 3; ++step) {
    const auto context = training(0.25 * static_cast<double>(step + 1));
    for (const int slot : {0, 1}) {
      const Batch batch = batch_for(*rig.model, 10 * step + slot, slot == 0 ? 4 : 3);
      results.push_back(rig.executor->forward(slot, batch, context).sums.tensor());
    }
    for (const int slot : {0, 1}) {
      rig.executor->backward(slot, {}, context, rig.recorder);
    }
    for (const auto& tensor : rig.arenas.tensors()) {
      results.push_back(tensor.grad().defined() ? tensor.grad().clone() : at::Tensor());
    }
    update(rig);
  }
  for (const auto& named : rig.arenas.state()) {
    results.push_back(named.tensor);
  }
  return results;
}

// `rounding` is the largest relative difference; 0: the bits must be equal.
void expect_equal(Rig& found, Rig& wanted, double rounding = 0) {
  const auto ours = train(found);
  const auto theirs = train(wanted);
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].defined(), theirs[i].defined()) << i;
    if (rounding > 0 && ours[i].defined()) {
      const auto difference = (ours[i] - theirs[i]).abs().max().item<double>();
      EXPECT_LE(difference, rounding * theirs[i].abs().max().item<double>()) << i;
    } else {
      EXPECT_TRUE(!ours[i].defined() || ours[i].equal(theirs[i])) << i;
    }
  }
  EXPECT_THAT(
      found.recorder.slots(),
      testing::UnorderedElementsAreArray(wanted.recorder.slots()));
}

// In these networks, three operators in several segments use a value or a parameter,
// and kernels compute SiLU in other layouts.
double rounding_of(const std::string& name) {
  return name == "branches" || name == "tied" ? 1e-5 : 0;
}

class Recomputed : public testing::TestWithParam<std::string> {};

TEST_P(Recomputed, HasTheBitsOfKeptValues) {
  for (size_t i = 0; i < std::size(kExecutors); ++i) {
    for (const int64_t every : {1, 2}) {
      SCOPED_TRACE(testing::Message() << "executor " << i << ", every " << every);
      Rig found(network(GetParam(), every), kExecutors[i]);
      Rig wanted(network(GetParam(), 0), kExecutors[i]);
      expect_equal(found, wanted, rounding_of(GetParam()));
    }
  }
}

TEST_P(Recomputed, KeepsTheValuesThatWereMeasured) {
  const auto plain = network(GetParam(), 0);
  const KeptValues values(*plain->graph(), false);
  for (const int64_t every : {0, 2}) {
    Rig rig(network(GetParam(), every));
    const Graph& graph = *rig.model->graph();
    const auto segments = every == 0
                              ? std::vector<NodeRange>{}
                              : recomputable(graph, segments_of(graph, every, true));
    rig.executor->forward(0, batch_for(*rig.model, 0, 5), training());
    EXPECT_EQ(rig.executor->kept_bytes(), values.after_forward(segments, 5));
    rig.executor->backward(0, {}, training(), rig.recorder);
    EXPECT_EQ(rig.executor->kept_bytes(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, Recomputed, testing::ValuesIn(kNetworks),
    [](const auto& instance) { return instance.param; });

TEST(Recompute, KeepsLessMemory) {
  for (const MakeExecutor make : kExecutors) {
    int64_t bytes[2] = {};
    for (const int64_t every : {0, 4}) {
      Rig rig(network("resnet18", every), make);
      rig.executor->forward(0, batch_for(*rig.model, 0, 6), training());
      bytes[every == 0 ? 0 : 1] = rig.executor->kept_bytes();
    }
    EXPECT_LT(bytes[1], bytes[0] * 9 / 10);
  }
}

// Dropout, whose masks depend on the positions of the samples.
TEST(Recompute, RepeatsDropout) {
  const auto dropping = [](bool recomputes) {
    auto model = small_net();
    if (recomputes) {
      model->recompute(recomputable(*model->graph(), {{0, 5}}));
    }
    return model;
  };
  Rig found(dropping(true));
  Rig wanted(dropping(false));
  for (int64_t first = 0; first < 3; ++first) {
    EXPECT_TRUE(found.step(images(first, 6), training())
                    .equal(wanted.step(images(first, 6), training())));
  }
  expect_gradients(found, [&] {
    std::vector<at::Tensor> gradients;
    for (const auto& named : wanted.model->parameters()) {
      gradients.push_back(named.tensor.grad());
    }
    return gradients;
  }());
}

TEST(Recompute, RunsFrozenLayersWithoutGradients) {
  const auto frozen = [](int64_t every) {
    auto model = network("residual", every);
    for (const size_t i : {0, 1, 2, 5}) {
      model->parameters()[i].tensor.set_requires_grad(false);
    }
    return model;
  };
  for (const MakeExecutor make : kExecutors) {
    Rig found(frozen(2), make);
    Rig wanted(frozen(0), make);
    expect_equal(found, wanted);
  }
}

TEST(Recompute, RepeatsAutocastAndFp16) {
  for (const auto precision : {Precision::bf16, Precision::fp16}) {
    ExecOptions exec;
    exec.precision = precision;
    StageOptions options;
    options.numerics = numerics_of(exec);
    Rig found(network("resnet18", 2), options);
    Rig wanted(network("resnet18", 0), options);
    expect_equal(found, wanted);
  }
}

TEST(Recompute, UsesKernelsForBothRuns) {
  Rig rig(network("resnet18", 4), &make_with_kernels);
  rig.step(batch_for(*rig.model, 0, 4), training());
  const std::string table = rig.executor->program_table();
  EXPECT_THAT(table, ContainsRegex("forward +layer2.0.conv1 +convolution 3 x 3"));
  EXPECT_THAT(table, ContainsRegex("forward +layer2.0.bn1 +batch norm"));
  EXPECT_THAT(table, ContainsRegex("backward +layer2.0.bn1 +batch norm"));
  EXPECT_THAT(table, Not(HasSubstr("aten::native_batch_norm")));
  EXPECT_THAT(table, Not(HasSubstr("aten::convolution")));
}

TEST(Recompute, TracesTheSecondRun) {
  auto model = small_net();
  model->recompute({{0, 3}});
  Rig rig(std::move(model));
  Trace trace;
  auto context = training();
  context.trace = &trace;
  rig.step(images(5, 6), context);
  std::vector<std::string> names;
  for (const auto& span : trace.compute_spans()) {
    names.push_back(span.name);
  }
  EXPECT_THAT(names, Contains("again conv"));
  EXPECT_THAT(names, Contains("backward conv"));
  EXPECT_THAT(names, Not(Contains("again fc")));
}

// A chain of layers runs as a recorded program.
TEST(Recompute, ReplacesTheExecutorOfChains) {
  ModelOptions options;
  options.input = {1, 8, 8};
  auto model = make_layered_model(
      {conv2d("conv", 1, 8, 3), relu(), flatten(), linear("fc", 288, 10)}, options);
  model->recompute(segments_of(*model->graph(), 1, false));
  StageOptions stage;
  stage.recomputes = true;
  Rig rig(std::move(model), &make_compiled_executor, stage);
  rig.step(image_batch({1, 8, 8}, 0, 4), training());
  EXPECT_THAT(
      rig.executor->program_table(), ContainsRegex("backward +conv +convolution"));
  stage.numerics.product = at::kBFloat16;
  EXPECT_THAT(
      compiled_obstacle(*rig.model, rig.arenas, stage),
      HasSubstr("a chain keeps all values, which --recompute forgets"));
}

TEST(ChooseSegments, FitsTheMemoryWithLittleWork) {
  const auto model = network("resnet18", 0);
  const Graph& graph = *model->graph();
  const KeptValues values(graph, false);
  const int64_t all = values.after_forward({}, 8);
  EXPECT_TRUE(choose_segments(graph, values, 8, all).empty());
  size_t before = 0;
  for (const double share : {0.9, 0.7, 0.5}) {
    const auto limit = static_cast<int64_t>(share * static_cast<double>(all));
    const auto segments = choose_segments(graph, values, 8, limit);
    EXPECT_LE(values.peak(segments, 8), limit);
    size_t nodes = 0;
    for (const auto& segment : segments) {
      nodes += segment.end - segment.begin;
    }
    EXPECT_GT(nodes, before);
    EXPECT_TRUE(share < 0.9 || nodes < graph.nodes.size() / 2);
    before = nodes;
  }
}

TEST(ChooseSegments, NamesTheLeastMemory) {
  const auto model = network("resnet18", 0);
  const Graph& graph = *model->graph();
  const KeptValues values(graph, false);
  const std::string message =
      error_of<ConfigError>([&] { (void)choose_segments(graph, values, 8, 1024); });
  EXPECT_THAT(message, HasSubstr("memory is 0.000977M, expected "));
  // The memory in the message is enough.
  const double least = std::stod(message.substr(message.find("expected ") + 9));
  EXPECT_FALSE(
      choose_segments(graph, values, 8, static_cast<int64_t>(least * (1 << 20)))
          .empty());
}

TEST(KeptValues, LeavesBuffersUnchanged) {
  const auto model = network("resnet18", 0);
  std::vector<at::Tensor> before;
  for (const auto& named : model->buffers()) {
    before.push_back(named.tensor.clone());
  }
  const KeptValues values(*model->graph(), false);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(model->buffers()[i].tensor.equal(before[i]));
  }
}

}  // namespace tandem::recompute_test

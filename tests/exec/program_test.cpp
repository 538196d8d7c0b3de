// Recorded steps that are repeated (exec/program), against the eager executor.

#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/model/graph_model.h"
#include "tests/core/expect.h"
#include "tests/exec/fixture_networks.h"
#include "tests/exec/rig.h"
#include "tests/graph/fixtures.h"
#include "tests/graph/graphs.h"

namespace tandem::program_test {

StepContext training_step(int64_t step) {
  StepContext context;
  context.step = step;
  context.seed = 7;
  context.loss_weight = 0.25 * static_cast<double>(step + 1);
  return context;
}

void expect_equal_state(const Rig& found, const Rig& expected) {
  const auto state = found.arenas.state();
  const auto wanted = expected.arenas.state();
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_TRUE(state[i].tensor.equal(wanted[i].tensor)) << state[i].name;
  }
  for (size_t slot = 0; slot < found.arenas.tensors().size(); ++slot) {
    const auto& gradient = found.arenas.tensors()[slot].grad();
    ASSERT_EQ(gradient.defined(), expected.arenas.tensors()[slot].grad().defined());
    if (gradient.defined()) {
      EXPECT_TRUE(gradient.equal(expected.arenas.tensors()[slot].grad()))
          << "gradient " << slot;
    }
  }
}

// Returns the relative error of a gradient, averaged over all parameters.
double mean_error(const Rig& found, const Rig& exact) {
  double sum = 0;
  for (size_t slot = 0; slot < exact.arenas.tensors().size(); ++slot) {
    const auto wanted = exact.arenas.tensors()[slot].grad();
    const auto error = found.arenas.tensors()[slot].grad().to(at::kDouble).sub(wanted);
    sum += error.norm().item<double>() / wanted.norm().item<double>();
  }
  return sum / static_cast<double>(exact.arenas.tensors().size());
}

class Programs : public testing::TestWithParam<std::string> {
 protected:
  // Trains two executors on the same batches, of two sizes.
  static void step(Rig& rig, int64_t number) {
    const Batch batch = batch_for(*rig.model, number, number % 2 == 0 ? 4 : 3);
    rig.step(batch, training_step(number));
    if (number % 3 == 2) {
      const c10::AutoGradMode no_grad(false);
      for (const auto& tensor : rig.arenas.tensors()) {
        if (tensor.grad().defined()) {
          tensor.add_(tensor.grad(), -0.1);
        }
      }
      rig.executor->parameters_changed({});
      rig.executor->zero_gradients();
    }
  }
};

TEST_P(Programs, OfPlainCallsHaveTheBitsOfEager) {
  Rig plain(fixture_network(GetParam()), &make_plain);
  Rig eager(fixture_network(GetParam()));
  StepContext evaluation;
  evaluation.training = false;
  for (int64_t number = 0; number < 6; ++number) {
    step(plain, number);
    step(eager, number);
    expect_equal_state(plain, eager);
    const Batch batch = batch_for(*plain.model, 50 + number, 5);
    const auto found = plain.executor->forward(0, batch, evaluation);
    const auto wanted = eager.executor->forward(0, batch, evaluation);
    EXPECT_TRUE(found.output.equal(wanted.output));
    EXPECT_TRUE(found.sums.tensor().equal(wanted.sums.tensor()));
  }
  EXPECT_EQ(plain.recorder.slots(), eager.recorder.slots());
}

TEST_P(Programs, WithKernelsAreAsExactAsEager) {
  Rig exact(fixture_network(GetParam(), at::kDouble));
  Rig eager(fixture_network(GetParam()));
  Rig kernels(fixture_network(GetParam()), &make_with_kernels);
  for (int64_t number = 0; number < 3; ++number) {
    for (Rig* rig : {&exact, &eager, &kernels}) {
      // Gradients of one step at the initial parameters, of two micro-batches.
      rig->executor->zero_gradients();
      for (const int64_t first : {10 * number, 10 * number + 5}) {
        rig->step(batch_for(*rig->model, first, 4), training_step(number));
      }
    }
    EXPECT_LE(mean_error(kernels, exact), 2 * mean_error(eager, exact));
  }
  for (size_t i = 0; i < kernels.arenas.state().size(); ++i) {
    const NamedTensor named = kernels.arenas.state()[i];
    EXPECT_TRUE(at::allclose(
        named.tensor.to(at::kDouble), exact.arenas.state()[i].tensor.to(at::kDouble),
        1e-4, 1e-5))
        << named.name;
  }
}

TEST_P(Programs, KeepSeveralMicroBatchesInFlight) {
  for (const auto make : {&make_plain, &make_with_kernels}) {
    Rig flights(fixture_network(GetParam()), make);
    Rig turns(fixture_network(GetParam()), make);
    const auto context = training_step(0);
    for (int slot = 0; slot < 3; ++slot) {
      (void)flights.executor->forward(
          slot, batch_for(*flights.model, 10 * slot, 4), context);
      turns.step(batch_for(*turns.model, 10 * slot, 4), context);
    }
    for (int slot = 0; slot < 3; ++slot) {
      flights.executor->backward(slot, {}, context, flights.recorder);
    }
    expect_equal_state(flights, turns);
  }
}

// Without kernels and with them, a run's results do not depend on which step is
// recorded, so a resumed run continues with equal bits.
TEST_P(Programs, HaveEqualBitsInTheStepThatIsRecorded) {
  Rig long_run(fixture_network(GetParam()), &make_with_kernels);
  Rig resumed(fixture_network(GetParam()), &make_with_kernels);
  step(long_run, 0);
  {
    const c10::AutoGradMode no_grad(false);
    for (size_t i = 0; i < resumed.arenas.state().size(); ++i) {
      resumed.arenas.state()[i].tensor.copy_(long_run.arenas.state()[i].tensor);
    }
  }
  long_run.executor->zero_gradients();
  step(long_run, 2);
  step(resumed, 2);
  expect_equal_state(resumed, long_run);
}

INSTANTIATE_TEST_SUITE_P(
    Networks, Programs, testing::ValuesIn(kNetworks),
    [](const auto& instance) { return instance.param; });

// Returns linear(x) of 4 values, then `add`, as a trainable model.
template <typename Add>
std::unique_ptr<Model> linear_then(const Add& add) {
  GraphBuilder builder({6});
  add(builder, builder.linear(builder.input(), "fc", waves({4, 6})));
  return make_graph_model(builder.trainable());
}

std::unique_ptr<Model> dropping_model() {
  return linear_then([](GraphBuilder& builder, ValueId x) {
    builder.call(
        "aten::dropout", "",
        {Argument::of_value(x), Argument::of(0.5), Argument::of(true)}, {4});
  });
}

TEST(Program, DrawsDropoutForThePositionsOfEachBatch) {
  Rig plain(dropping_model(), &make_plain);
  Rig eager(dropping_model());
  for (int64_t number = 0; number < 4; ++number) {
    const Batch batch = batch_for(*plain.model, 3 * number, 3);
    EXPECT_TRUE(plain.step(batch, training_step(number))
                    .equal(eager.step(batch, training_step(number))));
    expect_equal_state(plain, eager);
  }
}

// masked_select() returns a tensor whose size depends on values.
TEST(Program, RunsLikeEagerIfASizeDependsOnValues) {
  const auto model = [] {
    return linear_then([](GraphBuilder& builder, ValueId x) {
      const auto mask = builder.call(
          "aten::gt", "Scalar", {Argument::of_value(x), Argument::of(0)}, {4});
      const auto chosen = builder.add(
          "aten::masked_select", "", {Argument::of_value(x), Argument::of_value(mask)},
          fixed_shape({1}));
      const auto sum = builder.add(
          "aten::sum", "", {Argument::of_value(chosen), Argument()}, fixed_shape({}));
      builder.call(
          "aten::mul", "Tensor", {Argument::of_value(x), Argument::of_value(sum)}, {4});
    });
  };
  Rig program(model(), &make_with_kernels);
  Rig eager(model());
  testing::internal::CaptureStderr();
  for (int64_t number = 0; number < 3; ++number) {
    const Batch batch = batch_for(*eager.model, 3 * number, 3);
    program.step(batch, training_step(number));
    eager.step(batch, training_step(number));
    expect_equal_state(program, eager);
  }
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::HasSubstr(
          "the model runs operator by operator like eager, because "
          "aten::masked_select returns a tensor whose size depends on values"));
}

TEST(Program, NamesTheLayerInErrors) {
  GraphBuilder builder({2});
  builder.graph().values[0].dtype = at::kLong;
  const auto table = builder.state("table.weight", waves({5, 4}));
  const auto found = builder.call(
      "aten::embedding", "",
      {Argument::of_value(table), Argument::of_value(builder.input()), Argument::of(-1),
       Argument::of(false), Argument::of(false)},
      {2, 4}, "table");
  builder.call(
      "aten::flatten", "using_ints",
      {Argument::of_value(found), Argument::of(1), Argument::of(-1)}, {8});
  Rig program(make_graph_model(builder.trainable()), &make_with_kernels);
  Batch batch;
  batch.inputs = at::arange(4).view({2, 2});
  batch.targets = at::arange(2);
  program.step(batch, training_step(0));
  batch.inputs = at::arange(4).add(3).view({2, 2});
  EXPECT_THAT(
      error_of<Error>([&] { program.step(batch, training_step(1)); }),
      testing::AllOf(
          testing::HasSubstr("[model] table"), testing::HasSubstr("out of range")));
}

// Images of 3 channels in windows of 2 x 2 pixels; a row and a column remain.
TEST(Program, PoolsAveragesWithTheBitsOfEager) {
  const auto model = [] {
    GraphBuilder builder({3, 9, 9});
    const auto weight = builder.state("scale.weight", waves({3, 9, 9}));
    const auto scaled = builder.call(
        "aten::mul", "Tensor",
        {Argument::of_value(builder.input()), Argument::of_value(weight)}, {3, 9, 9});
    const auto pooled = builder.call(
        "aten::avg_pool2d", "",
        {Argument::of_value(scaled), Argument::of(std::vector<int64_t>{2, 2})},
        {3, 4, 4});
    const auto flat = builder.call(
        "aten::flatten", "using_ints",
        {Argument::of_value(pooled), Argument::of(1), Argument::of(-1)}, {48});
    builder.linear(flat, "fc", waves({4, 48}));
    return make_graph_model(builder.trainable());
  };
  Rig kernels(model(), &make_with_kernels);
  Rig eager(model());
  for (int64_t number = 0; number < 3; ++number) {
    const Batch batch = batch_for(*eager.model, 3 * number, 3);
    kernels.step(batch, training_step(number));
    eager.step(batch, training_step(number));
    expect_equal_state(kernels, eager);
  }
  const std::string table = kernels.executor->program_table();
  EXPECT_THAT(table, testing::ContainsRegex("forward .*average pool 2 x 2"));
  EXPECT_THAT(table, testing::ContainsRegex("backward .*average pool 2 x 2"));
}

TEST(Program, ComputesNoGradientsOfFrozenParameters) {
  const auto frozen = [](at::ScalarType dtype) {
    auto model = fixture_network("residual", dtype);
    for (const size_t i : {0, 1, 5}) {
      model->parameters()[i].tensor.set_requires_grad(false);
    }
    return model;
  };
  Rig plain(frozen(at::kFloat), &make_plain);
  Rig eager(frozen(at::kFloat));
  Rig kernels(frozen(at::kFloat), &make_with_kernels);
  for (Rig* rig : {&plain, &eager, &kernels}) {
    rig->step(batch_for(*rig->model, 0, 4), training_step(0));
  }
  expect_equal_state(plain, eager);
  EXPECT_EQ(kernels.recorder.slots(), eager.recorder.slots());
  for (size_t slot = 0; slot < eager.arenas.tensors().size(); ++slot) {
    const auto& wanted = eager.arenas.tensors()[slot].grad();
    if (wanted.defined()) {
      EXPECT_TRUE(
          at::allclose(kernels.arenas.tensors()[slot].grad(), wanted, 1e-3, 1e-5));
    }
  }
}

}  // namespace tandem::program_test

// Use of the arenas, which is the same for all optimizers.

#include "tandem/optim/optimizer.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/optim/small_arenas.h"

namespace tandem::optimizer_test {

constexpr int64_t kSteps = 10;

TEST(Optimizer, SplitRangesGiveTheSameBits) {
  for (const auto dtype : kDtypes) {
    for (const auto& options : one_of_each()) {
      SCOPED_TRACE(name_of(options.kind));
      Arenas whole(dtype, {0, 1, 0, 1});
      Arenas split(dtype, {0, 1, 0, 1});
      const std::vector<ParameterGroup> groups = {{1, 1}, {0.5, 2}};
      const auto once =
          make_optimizer(options, whole.parameters, whole.gradients, groups);
      const auto often =
          make_optimizer(options, split.parameters, split.gradients, groups);
      const int64_t numel = whole.layout->segments()[0].numel;
      for (int64_t step = 1; step <= kSteps; ++step) {
        const StepScalars context{0.3, 0.7, step};
        whole.set_gradients(step);
        split.set_gradients(step);
        once->update({0, 0, numel}, context);
        // Ranges of sizes 0, 1, 2, ... from the back have all remainders and
        // alignments.
        for (int64_t end = numel, size = 0; end > 0; end -= size, ++size) {
          often->update({0, std::max<int64_t>(0, end - size), end}, context);
        }
      }
      EXPECT_TRUE(whole.parameters.segment(0).equal(split.parameters.segment(0)));
      for (size_t i = 0; i < once->state().size(); ++i) {
        EXPECT_TRUE(once->state()[i]->segment(0).equal(often->state()[i]->segment(0)));
      }
    }
  }
}

TEST(Optimizer, MultipliesGradientsByTheScale) {
  for (const auto& options : one_of_each()) {
    SCOPED_TRACE(name_of(options.kind));
    Arenas plain(at::kFloat);
    Arenas scaled(at::kFloat);
    const auto first = make_optimizer(options, plain.parameters, plain.gradients);
    const auto second = make_optimizer(options, scaled.parameters, scaled.gradients);
    plain.set_gradients(1);
    scaled.set_gradients(1, 8);  // a power of two: exact
    update_all(*first, plain, {0.1, 1, 1});
    update_all(*second, scaled, {0.1, 0.125, 1});
    EXPECT_TRUE(plain.parameters.segment(0).equal(scaled.parameters.segment(0)));
  }
}

TEST(Optimizer, KeepsPaddingZero) {
  for (const auto& options : one_of_each()) {
    SCOPED_TRACE(name_of(options.kind));
    Arenas arenas(at::kFloat);
    const auto optimizer = make_optimizer(options, arenas.parameters, arenas.gradients);
    for (int64_t step = 1; step <= 3; ++step) {
      arenas.set_gradients(step);
      update_all(*optimizer, arenas, {0.1, 1, step});
    }
    auto checked = optimizer->state();
    checked.push_back(&arenas.parameters);
    for (Arena* arena : checked) {
      double inside = 0;
      for (size_t i = 0; i < kShapes.size(); ++i) {
        inside += arena->view(i).ne(0).sum().item<double>();
      }
      // Also counts NaN, which is not zero.
      EXPECT_EQ(arena->segment(0).ne(0).sum().item<double>(), inside) << arena->name();
    }
  }
}

TEST(Optimizer, UpdatesOnlyTheGivenRange) {
  for (const auto& options : one_of_each()) {
    SCOPED_TRACE(name_of(options.kind));
    Arenas arenas(at::kDouble);
    const auto optimizer = make_optimizer(options, arenas.parameters, arenas.gradients);
    const auto before = arenas.parameters.segment(0).clone();
    arenas.set_gradients(1);
    optimizer->update({0, 5, 30}, {0.1, 1, 1});
    const auto changed = arenas.parameters.segment(0).ne(before);
    EXPECT_EQ(changed.sum().item<int64_t>(), 25);
    EXPECT_EQ(changed.slice(0, 5, 30).sum().item<int64_t>(), 25);
  }
}

TEST(Optimizer, DoesNotChangeFrozenSegments) {
  const auto trained = at::ones({3}, at::kDouble).set_requires_grad(true);
  const auto layout = std::make_shared<const ArenaLayout>(
      std::vector<NamedTensor>{
          {"frozen", at::ones({3})},
          {"trained", trained},
          {"count", at::ones({2}, at::kLong)}},
      std::vector<int64_t>{}, 1);
  Arena parameters(layout, "parameters");
  Arena gradients(layout, "gradients");
  parameters.view(0).fill_(1);
  parameters.view(1).fill_(1);
  parameters.view(2).fill_(1);
  auto options = named("adamw");
  options.weight_decay = 0.5;
  const auto optimizer = make_optimizer(options, parameters, gradients);
  for (const auto& range : layout->ranges()) {
    optimizer->update(range, {0.1, 1, 1});
  }
  EXPECT_TRUE(parameters.view(0).eq(1).all().item<bool>());
  EXPECT_TRUE(parameters.view(1).eq(1 - 0.1 * 0.5).all().item<bool>());
  EXPECT_TRUE(parameters.view(2).eq(1).all().item<bool>());
}

TEST(Optimizer, StateHasPyTorchNames) {
  const auto names = [](const OptimizerOptions& options) {
    Arenas arenas(at::kFloat);
    const auto optimizer = make_optimizer(options, arenas.parameters, arenas.gradients);
    std::vector<std::string> found;
    for (const Arena* arena : optimizer->state()) {
      EXPECT_EQ(arena->layout().describe(), arenas.layout->describe());
      found.push_back(arena->name());
    }
    return join(found);
  };
  EXPECT_EQ(names(named("sgd")), "");
  EXPECT_EQ(names(named("adam")), "exp_avg, exp_avg_sq");
  const auto full = one_of_each();
  EXPECT_EQ(names(full[0]), "momentum_buffer");
  EXPECT_EQ(names(full[1]), "exp_avg, exp_avg_sq, max_exp_avg_sq");
  EXPECT_EQ(names(full[2]), "exp_avg, exp_avg_sq, max_exp_avg_sq");
  EXPECT_EQ(names(full[3]), "square_avg, acc_delta");
}

TEST(Optimizer, BaseLrDefaultsToThatOfPyTorch) {
  const auto base_lr = [](const OptimizerOptions& options) {
    Arenas arenas(at::kFloat);
    return make_optimizer(options, arenas.parameters, arenas.gradients)->base_lr();
  };
  EXPECT_EQ(base_lr(named("sgd")), 1e-3);
  EXPECT_EQ(base_lr(named("adam")), 1e-3);
  EXPECT_EQ(base_lr(named("adamw")), 1e-3);
  EXPECT_EQ(base_lr(named("adadelta")), 1);
  auto options = named("adam");
  options.lr = 0;
  EXPECT_EQ(base_lr(options), 0);
}

}  // namespace tandem::optimizer_test

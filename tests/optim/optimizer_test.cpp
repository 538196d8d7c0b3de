// Use of the arenas, which is the same for all optimizers.

#include "tandem/optim/optimizer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/core/expect.h"
#include "tests/optim/small_arenas.h"

namespace tandem::optimizer_test {

constexpr int64_t kSteps = 10;

// Divides the only segment into ranges, which are whole parameters if `options` need
// them. Otherwise the ranges have sizes 0, 1, 2, ... from the back, and so all
// remainders and alignments.
std::vector<ArenaRange> split(
    const ArenaLayout& layout, const OptimizerOptions& options) {
  std::vector<ArenaRange> ranges;
  if (needs_whole_tensors(options)) {
    for (const auto& slot : layout.slots()) {
      ranges.push_back(slot.range());
    }
    return ranges;
  }
  for (int64_t end = layout.segments()[0].numel, size = 0; end > 0;
       end -= size, ++size) {
    ranges.push_back({0, std::max<int64_t>(0, end - size), end});
  }
  return ranges;
}

TEST(Optimizer, SplitRangesGiveTheSameBits) {
  for (const auto dtype : kDtypes) {
    for (const auto& options : one_of_each()) {
      SCOPED_TRACE(name_of(options.kind));
      Arenas whole(dtype, {0, 1, 0, 1});
      Arenas split_arenas(dtype, {0, 1, 0, 1});
      const std::vector<ParameterGroup> groups = {{1, 1}, {0.5, 2}};
      const auto once =
          make_optimizer(options, whole.parameters, whole.gradients, groups);
      const auto often = make_optimizer(
          options, split_arenas.parameters, split_arenas.gradients, groups);
      const int64_t numel = whole.layout->segments()[0].numel;
      for (int64_t step = 1; step <= kSteps; ++step) {
        const StepScalars context{0.3, 0.7, step};
        whole.set_gradients(step);
        split_arenas.set_gradients(step);
        once->update({0, 0, numel}, context);
        for (const auto& range : split(*split_arenas.layout, options)) {
          often->update(range, context);
        }
      }
      EXPECT_TRUE(
          whole.parameters.segment(0).equal(split_arenas.parameters.segment(0)));
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
      for (size_t i = 0; i < arena->layout().slots().size(); ++i) {
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
    const ArenaRange range = needs_whole_tensors(options)
                                 ? arenas.layout->slots()[2].range()
                                 : ArenaRange{0, 5, 30};
    optimizer->update(range, {0.1, 1, 1});
    const auto changed = arenas.parameters.segment(0).ne(before);
    EXPECT_EQ(changed.sum().item<int64_t>(), range.size());
    EXPECT_EQ(
        changed.slice(0, range.begin, range.end).sum().item<int64_t>(), range.size());
  }
}

TEST(Optimizer, RefusesAPartOfATensorItNeedsWhole) {
  for (const auto& options : one_of_each()) {
    if (needs_whole_tensors(options)) {
      Arenas arenas(at::kFloat);
      const auto optimizer =
          make_optimizer(options, arenas.parameters, arenas.gradients);
      EXPECT_TRUE(optimizer->needs_whole_tensors());
      expect_error<Error>(
          [&] {
            optimizer->update({0, 5, 30}, {0.1, 1, 1});
          },
          {"a part of 'p0'", name_of(options.kind)});
    }
  }
}

// The tensors are so large that several threads update each of them.
TEST(Optimizer, ThreadsDoNotChangeTheBits) {
  const auto weight = at::linspace(-1, 1, 300 * 500, at::kFloat).view({300, 500});
  const auto layout = std::make_shared<const ArenaLayout>(
      std::vector<NamedTensor>{{"weight", weight.set_requires_grad(true)}},
      std::vector<int64_t>{}, 1);
  const auto train = [&](const OptimizerOptions& options, int threads) {
    at::set_num_threads(threads);
    Arena parameters(layout, "parameters");
    Arena gradients(layout, "gradients");
    parameters.view(0).copy_(weight.detach());
    gradients.view(0).copy_(at::sin(100 * weight.detach()));
    const auto optimizer = make_optimizer(options, parameters, gradients);
    for (int64_t step = 1; step <= 3; ++step) {
      optimizer->update(layout->ranges()[0], {0.01, 0.7, step});
    }
    return parameters.segment(0);
  };
  const int before = at::get_num_threads();
  for (const auto& options : one_of_each()) {
    // Products of matrices are LibTorch's.
    if (options.kind != OptimizerKind::muon) {
      EXPECT_TRUE(train(options, 1).equal(train(options, 3))) << name_of(options.kind);
    }
  }
  at::set_num_threads(before);
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

// Rounding can make the variance of equal gradients negative.
TEST(Rmsprop, EqualGradientsGiveNumbers) {
  auto options = named("rmsprop");
  options.centered = true;
  options.alpha = 0.5;
  Arenas arenas(at::kFloat);
  const auto optimizer = make_optimizer(options, arenas.parameters, arenas.gradients);
  arenas.set_gradients(1);
  for (int64_t step = 1; step <= 100; ++step) {
    update_all(*optimizer, arenas, {1e-9, 1, step});
  }
  EXPECT_TRUE(arenas.parameters.segment(0).isfinite().all().item<bool>());
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
  EXPECT_EQ(names(full[4]), "sum");
  EXPECT_EQ(names(full[5]), "square_avg, grad_avg, momentum_buffer");
  EXPECT_EQ(names(full[6]), "exp_avg, exp_inf");
  EXPECT_EQ(names(named("nadam")), "exp_avg, exp_avg_sq");
  EXPECT_EQ(names(named("radam")), "exp_avg, exp_avg_sq");
  EXPECT_EQ(names(named("lion")), "exp_avg");
  EXPECT_EQ(names(named("lamb")), "exp_avg, exp_avg_sq");
}

TEST(Optimizer, StateHasOnlyTheTensorsThatUpdatesNeed) {
  const auto state = [](const OptimizerOptions& options) {
    Arenas arenas(at::kFloat);
    const auto optimizer = make_optimizer(options, arenas.parameters, arenas.gradients);
    std::vector<std::string> found;
    for (const Arena* arena : optimizer->state()) {
      for (const auto& slot : arena->layout().slots()) {
        std::string name = arena->name() + "/" + slot.name;
        for (const int64_t dim : slot.dims) {
          name += " " + std::to_string(dim);
        }
        found.push_back(name);
      }
    }
    return join(found);
  };
  EXPECT_EQ(
      state(named("adafactor")),
      "row_var/p0 7 1, row_var/p2 2 3 1, col_var/p0 1 5, col_var/p2 2 1 13, "
      "variance/p1 3, variance/p3");
  EXPECT_EQ(
      state(named("muon")),
      "momentum_buffer/p0 7 5, exp_avg/p1 3, exp_avg/p2 2 3 13, exp_avg/p3, "
      "exp_avg_sq/p1 3, exp_avg_sq/p2 2 3 13, exp_avg_sq/p3");
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
  EXPECT_EQ(base_lr(named("adagrad")), 1e-2);
  EXPECT_EQ(base_lr(named("rmsprop")), 1e-2);
  EXPECT_EQ(base_lr(named("adamax")), 2e-3);
  EXPECT_EQ(base_lr(named("nadam")), 2e-3);
  EXPECT_EQ(base_lr(named("radam")), 1e-3);
  EXPECT_EQ(base_lr(named("lion")), 1e-4);
  EXPECT_EQ(base_lr(named("lamb")), 1e-3);
  EXPECT_EQ(base_lr(named("adafactor")), 1e-2);
  EXPECT_EQ(base_lr(named("muon")), 1e-3);
  auto options = named("adam");
  options.lr = 0;
  EXPECT_EQ(base_lr(options), 0);
}

}  // namespace tandem::optimizer_test

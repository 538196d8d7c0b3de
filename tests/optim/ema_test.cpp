#include "tandem/optim/ema.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/optim/small_arenas.h"

namespace tandem::ema_test {

constexpr double kDecay = 0.9;

TEST(Ema, CopiesInTheFirstUpdateAndThenAverages) {
  for (const auto dtype : kDtypes) {
    for (auto options : one_of_each()) {
      SCOPED_TRACE(name_of(options.kind));
      Arenas plain(dtype, {0, 1, 0, 1});
      Arenas averaged(dtype, {0, 1, 0, 1});
      const std::vector<ParameterGroup> groups = {{1, 1}, {0.5, 2}};
      const auto own =
          make_optimizer(options, plain.parameters, plain.gradients, groups);
      options.ema_decay = kDecay;
      const auto ema =
          make_optimizer(options, averaged.parameters, averaged.gradients, groups);
      ASSERT_EQ(ema->state().size(), own->state().size() + 1);
      const Arena& average = *ema->state().back();
      EXPECT_EQ(average.name(), "ema");
      at::Tensor expected;
      for (int64_t step = 1; step <= 5; ++step) {
        plain.set_gradients(step);
        averaged.set_gradients(step);
        update_all(*own, plain, {0.3, 1, step});
        update_all(*ema, averaged, {0.3, 1, step});
        const auto parameters = plain.parameters.segment(0);
        EXPECT_TRUE(averaged.parameters.segment(0).equal(parameters));
        const auto wide = parameters.clone().to(at::kDouble);
        expected = step == 1 ? wide : expected * kDecay + wide * (1 - kDecay);
        EXPECT_LE(
            (average.segment(0) - expected).abs().max().item<double>(),
            dtype == at::kDouble ? 1e-15 : 1e-6);
      }
    }
  }
}

// More elements than a piece, and a rest.
TEST(Ema, LargeRangesHaveTheBitsOfPieces) {
  auto weight = at::empty({50'003}).fill_(0.5).set_requires_grad(true);
  const auto layout = std::make_shared<const ArenaLayout>(
      std::vector<NamedTensor>{{"weight", weight}}, std::vector<int64_t>{}, 1);
  std::vector<at::Tensor> averages;
  for (const int64_t size : {100'000, 17}) {
    Arena parameters(layout, "parameters");
    Arena gradients(layout, "gradients");
    const int64_t numel = parameters.segment(0).numel();
    gradients.segment(0).copy_(at::arange(numel).sin());
    auto options = named("adam");
    options.ema_decay = kDecay;
    const auto optimizer = make_optimizer(options, parameters, gradients);
    for (int64_t step = 1; step <= 3; ++step) {
      for (int64_t begin = 0; begin < numel; begin += size) {
        optimizer->update({0, begin, std::min(begin + size, numel)}, {0.1, 1, step});
      }
    }
    averages.push_back(optimizer->state().back()->segment(0));
  }
  EXPECT_GT(averages[0].abs().max().item<double>(), 0.1);
  EXPECT_TRUE(averages[0].equal(averages[1]));
}

TEST(Ema, CountsSkippedStepsAsPyTorchLoopsDo) {
  Arenas arenas(at::kDouble);
  auto options = named("sgd");
  options.ema_decay = kDecay;
  const auto optimizer = make_optimizer(options, arenas.parameters, arenas.gradients);
  const Arena& average = *optimizer->state().back();
  const auto p0 = arenas.parameters.segment(0).clone();
  arenas.set_gradients(1);
  update_all(*optimizer, arenas, {0.1, 1, 0, true, 1});
  EXPECT_TRUE(arenas.parameters.segment(0).equal(p0));
  EXPECT_TRUE(average.segment(0).equal(p0));
  update_all(*optimizer, arenas, {0.1, 1, 1, false, 1});
  const auto p1 = arenas.parameters.segment(0).clone();
  EXPECT_FALSE(p1.equal(p0));
  const auto second = p0 * kDecay + p1 * (1 - kDecay);
  EXPECT_TRUE(average.segment(0).allclose(second, 1e-15));
  update_all(*optimizer, arenas, {0.1, 1, 1, true, 2});
  EXPECT_TRUE(average.segment(0).allclose(second * kDecay + p1 * (1 - kDecay), 1e-15));
}

TEST(Ema, HasTheValuesOfFrozenParameters) {
  const auto frozen = at::arange(1, 6, at::kDouble);
  const auto trained = at::arange(3, at::kDouble).set_requires_grad(true);
  const auto layout = std::make_shared<const ArenaLayout>(
      std::vector<NamedTensor>{{"frozen", frozen}, {"trained", trained}},
      std::vector<int64_t>{}, 1);
  Arena parameters(layout, "parameters");
  Arena gradients(layout, "gradients");
  parameters.view(0).copy_(frozen);
  auto options = named("sgd");
  options.ema_decay = kDecay;
  const auto optimizer = make_optimizer(options, parameters, gradients);
  for (const auto& range : layout->ranges()) {
    optimizer->update(range, {0.1, 1, 1});
  }
  EXPECT_TRUE(optimizer->state().back()->view(0).equal(frozen));
}

}  // namespace tandem::ema_test

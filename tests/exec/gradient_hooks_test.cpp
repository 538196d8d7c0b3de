#include "tandem/exec/gradient_hooks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/exec/rig.h"

namespace tandem::gradient_hooks_test {

using testing::UnorderedElementsAre;

TEST(GradientHooks, ReportWhileTheyExist) {
  const auto model = small_net();
  ModelArenas arenas(model->parameters(), {});
  const auto backward = [&] {
    model->forward(waves(0, {2, 1, 8, 8}), {}).sum().backward();
  };
  std::vector<size_t> first;
  std::vector<size_t> second;
  {
    const GradientHooks outer(arenas, [&](size_t slot) { first.push_back(slot); });
    {
      const GradientHooks inner(arenas, [&](size_t slot) { second.push_back(slot); });
      backward();
    }
    backward();
  }
  backward();
  EXPECT_EQ(first.size(), 8u);
  EXPECT_THAT(second, UnorderedElementsAre(0, 1, 2, 3));
}

}  // namespace tandem::gradient_hooks_test

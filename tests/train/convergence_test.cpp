#include "tandem/train/agreement/run_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/comm/group.h"

namespace tandem::convergence_test {

using testing::ElementsAre;

// Returns the state after an epoch as letters: n (converged now), m (mine), s (some), a
// (all).
std::string told(Convergence& convergence, double loss) {
  std::string text = convergence.note(loss) ? "n" : "";
  text += convergence.mine() ? "m" : "";
  text += convergence.some() ? "s" : "";
  text += convergence.all() ? "a" : "";
  return text;
}

TEST(Convergence, RunConvergesWhenTheLastRankHasConverged) {
  const std::vector<std::vector<double>> losses = {
      {2, 1, 0.95, 0, 0}, {2, 1.5, 1, 0.5, 0.49}};
  const auto ranks = on_each_rank("thread", 2, [&](Communicator& comm) {
    Convergence convergence(comm, 0.1, true);
    std::vector<std::string> all;
    for (const double loss : losses[static_cast<size_t>(comm.rank())]) {
      all.push_back(told(convergence, loss));
    }
    return all;
  });
  EXPECT_THAT(ranks[0], ElementsAre("", "", "nms", "ms", "msa"));
  EXPECT_THAT(ranks[1], ElementsAre("", "", "s", "s", "nmsa"));
}

TEST(Convergence, ARankWithoutSamplesDoesNotCount) {
  const auto ranks = on_each_rank("thread", 2, [&](Communicator& comm) {
    Convergence convergence(comm, 0.1, comm.rank() == 1);
    told(convergence, 1);
    return told(convergence, 1);
  });
  EXPECT_THAT(ranks, ElementsAre("sa", "nmsa"));
}

TEST(Convergence, IsOffWithoutMinDelta) {
  const auto comm = make_single_communicator();
  Convergence convergence(*comm, 0, true);
  EXPECT_FALSE(convergence.wanted());
  EXPECT_EQ(told(convergence, 1) + told(convergence, 1), "");
}

TEST(Convergence, ContinuesFromItsState) {
  const auto comm = make_single_communicator();
  Convergence first(*comm, 0.1, true);
  first.note(1);
  Convergence second(*comm, 0.1, true);
  second.state()[0].tensor.copy_(first.state()[0].tensor);
  EXPECT_EQ(told(second, 0.95), "nmsa");
  Convergence third(*comm, 0.1, true);
  third.state()[0].tensor.copy_(second.state()[0].tensor);
  EXPECT_TRUE(third.all());
}

}  // namespace tandem::convergence_test

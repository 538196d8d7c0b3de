#include "tandem/comm/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/group.h"

namespace tandem::exchange_test {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

class Exchange : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(
    Backends, Exchange, testing::Values("thread", "shm", "gloo"),
    [](const auto& backend) { return std::string(backend.param); });

TEST_P(Exchange, NumbersOfAllRanksAreInRankOrder) {
  const auto ranks = on_each_rank(GetParam(), 3, [](Communicator& comm) {
    return exchange_numbers({comm.rank(), 100 - comm.rank()}, "numbers", comm);
  });
  EXPECT_THAT(
      ranks,
      Each(ElementsAre(ElementsAre(0, 100), ElementsAre(1, 99), ElementsAre(2, 98))));
}

TEST_P(Exchange, ReductionsCoverAllRanks) {
  const auto ranks = on_each_rank(GetParam(), 4, [](Communicator& comm) {
    const int64_t largest = reduce_count(10 * comm.rank(), ReduceOp::max, "a", comm);
    return static_cast<double>(largest) +
           reduce_number(0.125 * (1 + comm.rank()), ReduceOp::sum, "b", comm);
  });
  EXPECT_THAT(ranks, Each(30 + 0.125 * 10));
}

TEST_P(Exchange, OnlyRank0GetsTheTexts) {
  const std::string large(300'001, 'x');
  const auto ranks = on_each_rank(GetParam(), 4, [&](Communicator& comm) {
    const std::string texts[] = {"zero", "", "12345678", large};
    return gather_texts(texts[comm.rank()], "texts", comm);
  });
  EXPECT_THAT(ranks[0], ElementsAre("zero", "", "12345678", large));
  for (size_t rank = 1; rank < 4; ++rank) {
    EXPECT_THAT(ranks[rank], IsEmpty());
  }
}

}  // namespace tandem::exchange_test

#include "tandem/launch/restarts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem::restarts_test {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

HostEnding killed(const std::string& pid = "7") {
  return {Cause::killed, 1, "rank 1 (pid " + pid + ") was killed by SIGKILL"};
}

TEST(Restarts, AreCountedAndNamed) {
  Restarts restarts(2);
  auto ending = killed();
  restarts.decide(ending, 5);
  EXPECT_TRUE(ending.again);
  EXPECT_EQ(ending.reason, killed().reason + "; restart 1 of 2");
  const auto variables = restarts.variables();
  EXPECT_EQ(variables[0].second, "1");
  EXPECT_EQ(variables.back().second, killed().reason);
  ending = killed();
  restarts.decide(ending, 9);
  EXPECT_TRUE(ending.again);
  ending = killed();
  restarts.decide(ending, 12);
  EXPECT_FALSE(ending.again);
  EXPECT_THAT(ending.reason, HasSubstr("no restart is left of 2"));
  EXPECT_EQ(restarts.count(), 2);
}

TEST(Restarts, DoNotFollowSuccessMisuseOrAStop) {
  Restarts restarts(5);
  for (const int code : {0, 2, kExitStopped}) {
    HostEnding ending{Cause::own_error, code, "reason"};
    restarts.decide(ending, 5);
    EXPECT_FALSE(ending.again) << code;
    EXPECT_EQ(ending.reason, "reason");
  }
  HostEnding ending = killed();
  Restarts(0).decide(ending, 5);
  EXPECT_FALSE(ending.again);
}

TEST(Restarts, EndAfterThreeEqualFailuresAtOneStep) {
  Restarts restarts(9);
  for (const char* pid : {"1", "22", "333"}) {
    auto ending = killed(pid);
    restarts.decide(ending, 5);
    EXPECT_EQ(ending.again, std::string(pid) != "333");
    if (!ending.again) {
      EXPECT_THAT(ending.reason, HasSubstr("failed 3 times after step 5"));
    }
  }
}

TEST(Restarts, ContinueIfTheStepOrTheReasonDiffers) {
  Restarts restarts(9);
  for (int64_t step : {5, 5, 6, 6, 5}) {
    auto ending = killed();
    restarts.decide(ending, step);
    EXPECT_TRUE(ending.again);
  }
  HostEnding other{Cause::own_error, 1, "another reason"};
  restarts.decide(other, 5);
  EXPECT_TRUE(other.again);
}

TEST(Restarts, OfProgramsWithUnknownStepsAreLimitedOnlyByTheirNumber) {
  Restarts restarts(5);
  for (int i = 0; i < 5; ++i) {
    auto ending = killed();
    restarts.decide(ending, -1);
    EXPECT_TRUE(ending.again);
  }
}

TEST(Restarts, WaitLongerWithoutProgress) {
  Restarts restarts(100);
  const auto delay_after = [&](int64_t step) {
    auto ending = killed();
    restarts.decide(ending, step);
    return restarts.delay();
  };
  EXPECT_EQ(delay_after(5), seconds(0));
  EXPECT_EQ(delay_after(-1), seconds(1));
  EXPECT_EQ(delay_after(-1), seconds(2));
  EXPECT_EQ(delay_after(7), seconds(0));
  EXPECT_EQ(delay_after(7), seconds(1));
  EXPECT_EQ(delay_after(8), seconds(0));
  for (int i = 0; i < 10; ++i) {
    EXPECT_LE(delay_after(-1), seconds(60));
  }
  EXPECT_EQ(restarts.delay(), seconds(60));
}

// An attempt on three hosts that ended because host 2 was lost.
HostChanges::Change loss_of_host_2(bool made_step = false) {
  return {{0, 1, 2}, {2}, {}, made_step};
}
// An attempt on two hosts that ended because host 2 joined.
const HostChanges::Change kJoined = {{0, 1}, {}, {2}, true};

TEST(HostChanges, ExcludeAHostAfterThreeStartsWithoutAStep) {
  HostChanges changes;
  EXPECT_THAT(changes.note(loss_of_host_2()), IsEmpty());
  EXPECT_THAT(changes.note(kJoined), IsEmpty());
  EXPECT_THAT(changes.note(loss_of_host_2()), IsEmpty());
  EXPECT_THAT(changes.note(kJoined), IsEmpty());
  EXPECT_THAT(changes.note(loss_of_host_2()), ElementsAre(2));
  EXPECT_THAT(changes.note({{0, 1}, {1}, {}, false}), IsEmpty());
  EXPECT_THAT(changes.excluded(), ElementsAre(2));
}

TEST(HostChanges, AStepWithTheHostResetsItsCount) {
  HostChanges changes;
  for (int i = 0; i < 4; ++i) {
    changes.note(loss_of_host_2());
    changes.note(kJoined);
    changes.note(loss_of_host_2());
    changes.note(loss_of_host_2(true));
  }
  EXPECT_THAT(changes.excluded(), IsEmpty());
}

TEST(HostChanges, CountHostsThatDoNotTakePartAfterTheyJoined) {
  HostChanges changes;
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(changes.note(kJoined), IsEmpty());
  }
  EXPECT_THAT(changes.note(kJoined), ElementsAre(2));
}

TEST(HostChanges, CountEachHostSeparately) {
  HostChanges changes;
  for (const int node : {1, 2, 3, 1, 2, 3, 1}) {
    changes.note({{0, 1, 2, 3}, {node}, {}, false});
  }
  EXPECT_THAT(changes.excluded(), ElementsAre(1));
}

}  // namespace tandem::restarts_test

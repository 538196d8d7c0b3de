#include "tandem/launch/restarts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::host_changes_test {

using testing::ElementsAre;
using testing::IsEmpty;

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

}  // namespace tandem::host_changes_test

// When ranks on devices meet over NCCL.

#include "tandem/comm/nccl/nccl_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/group.h"

namespace tandem::nccl_choice_test {

using testing::Each;

// On 4 ranks, whose devices and missing libraries are these.
std::vector<std::string> obstacles(
    const std::vector<std::string>& devices, const std::vector<std::string>& missing) {
  return on_each_rank("thread", 4, [&](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    return nccl_obstacle(comm, devices[rank], missing[rank]);
  });
}

TEST(NcclChoice, IsForRanksWithADeviceEach) {
  const std::vector<std::string> all = {"a 1", "a 2", "b 1", "b 2"};
  EXPECT_THAT(obstacles(all, {"", "", "", ""}), Each(""));
  EXPECT_THAT(
      obstacles({"a 1", "a 2", "b 1", "a 2"}, {"", "", "", ""}),
      Each("ranks 1 and 3 share a device"));
}

TEST(NcclChoice, OneWithoutTheLibraryKeepsAllFromIt) {
  EXPECT_THAT(
      obstacles({"a 1", "a 2", "b 1", "b 2"}, {"", "", "no libnccl.so.2", ""}),
      Each("no libnccl.so.2"));
}

}  // namespace tandem::nccl_choice_test

#include "tandem/launch/rendezvous.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "tests/base/test_tools.h"

namespace tandem::meeting_directory_test {

class Meeting : public ::testing::Test {
 protected:
  Meeting() {
    setenv("TMPDIR", folder_.path().c_str(), 1);
  }
  ~Meeting() override {
    unsetenv("TMPDIR");
  }

  static void serve(const MeetingDirectory& directory) {
    replace_file(directory.store_address().substr(5), "a store");
  }
  std::vector<std::string> names() const {
    return list_directory(folder_.path());
  }

  Scratch folder_;
};

TEST_F(Meeting, DirectoryIsRemovedWithItsOwner) {
  auto directory = std::make_unique<MeetingDirectory>();
  serve(*directory);
  EXPECT_EQ(names().size(), 1U);
  directory.reset();
  EXPECT_TRUE(names().empty());
}

TEST_F(Meeting, RunningLaunchersKeepTheirDirectories) {
  const MeetingDirectory first;
  serve(first);
  const MeetingDirectory second;
  serve(second);
  EXPECT_EQ(names().size(), 2U);
}

TEST_F(Meeting, TheNextLauncherRemovesTheDirectoryOfAKilledOne) {
  make_directories(folder_ / "tandem-killed");
  replace_file(folder_ / "tandem-killed/launcher-store", "");
  // Directories of other programs have no store, or another name.
  make_directories(folder_ / "tandem-result");
  make_directories(folder_ / "somebody-else");
  replace_file(folder_ / "somebody-else/launcher-store", "");
  {
    const MeetingDirectory directory;
    EXPECT_EQ(names().size(), 3U);
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"somebody-else", "tandem-result"}));
}

}  // namespace tandem::meeting_directory_test

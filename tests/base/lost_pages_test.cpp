#include "tandem/base/lost_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/mapped_file.h"
#include "tests/scratch.h"

namespace tandem::lost_pages_test {

constexpr size_t kPage = 4096;

// Maps a file of three pages, shortens it and reads its last byte.
void read_after_the_end(const std::string& path, off_t size) {
  const Bytes bytes = map_file(path);
  if (truncate(path.c_str(), size) == 0) {
    volatile uint8_t last = bytes[3 * kPage - 1];
    (void)last;
  }
  std::exit(0);
}

TEST(LostPages, AnAccessAfterTheEndOfAShortenedFileNamesTheFile) {
  const Scratch scratch;
  const auto path = scratch / "x.npy";
  replace_file(path, std::string(3 * kPage, 'x'));
  EXPECT_EXIT(
      read_after_the_end(path, 1'000), testing::ExitedWithCode(1),
      "tandem: error: \\[files\\] '" + path + "' has 1000 bytes, expected 12288 ");
}

TEST(LostPages, AnOwnActionReplacesTheLine) {
  const Scratch scratch;
  const auto path = scratch / "x.npy";
  replace_file(path, std::string(3 * kPage, 'x'));
  const auto act = [&] {
    on_lost_page([](const std::exception& error) {
      std::_Exit(std::string(error.what()).find("has 0 bytes") > 0 ? 7 : 8);
    });
    read_after_the_end(path, 0);
  };
  EXPECT_EXIT(act(), testing::ExitedWithCode(7), "");
}

TEST(LostPages, OtherSignalsKillAsBefore) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer handles SIGBUS";
#endif
  const Scratch scratch;
  const auto path = scratch / "x.npy";
  replace_file(path, std::string(3 * kPage, 'x'));
  const auto act = [&] {
    const Bytes bytes = map_file(path);
    kill(getpid(), SIGBUS);
    std::exit(0);
  };
  EXPECT_EXIT(act(), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace tandem::lost_pages_test

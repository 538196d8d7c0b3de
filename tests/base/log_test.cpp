#include "tandem/base/log.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace tandem::log_test {

std::string logged_by(int rank, int world_size, const std::function<void()>& act) {
  ::testing::internal::CaptureStderr();
  std::thread thread([&] {
    set_thread_rank(rank, world_size);
    act();
  });
  thread.join();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, NamesTheRankIfThereAreSeveral) {
  const auto act = [] { log_error("[loader] no data"); };
  EXPECT_EQ(logged_by(0, 1, act), "tandem: error: [loader] no data\n");
  EXPECT_EQ(logged_by(2, 4, act), "tandem: [rank 2] error: [loader] no data\n");
}

TEST(Log, InfoComesFromRankZeroOnly) {
  const auto act = [] { log_info("epoch 1"); };
  EXPECT_EQ(logged_by(0, 4, act), "tandem: epoch 1\n");
  EXPECT_EQ(logged_by(1, 4, act), "");
}

TEST(Log, ReplacesControlCharacters) {
  EXPECT_EQ(
      logged_by(0, 1, [] { log_info("reading 'a\x1b[31m\nb'"); }),
      "tandem: reading 'a?[31m?b'\n");
}

TEST(Log, WarnsOnce) {
  const auto act = [] {
    log_warning("slow disk");
    log_warning("slow disk");
    log_warning("slow network");
  };
  EXPECT_EQ(
      logged_by(0, 1, act),
      "tandem: warning: slow disk\ntandem: warning: slow network\n");
  EXPECT_EQ(logged_by(0, 1, act), "");
}

TEST(Log, EachThreadHasARank) {
  std::thread([] { set_thread_rank(3, 4); }).join();
  EXPECT_EQ(thread_rank(), 0);
}

}  // namespace tandem::log_test

#include "tandem/base/signals.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace tandem {
namespace {

class Signals : public ::testing::Test {
 protected:
  Signals() {
    for (int i = 0; i < 3; ++i) {
      sigaction(kNumbers[i], nullptr, &before_[i]);
    }
    catch_signals();
  }
  ~Signals() override {
    for (int i = 0; i < 3; ++i) {
      sigaction(kNumbers[i], &before_[i], nullptr);
    }
  }

  static constexpr int kNumbers[3] = {SIGTERM, SIGINT, SIGUSR1};
  struct sigaction before_[3]{};
};

TEST_F(Signals, TellWhichOneAskedToStop) {
  raise(SIGTERM);
  EXPECT_EQ(stop_signal(), SIGTERM);
  raise(SIGINT);
  EXPECT_EQ(stop_signal(), SIGINT);
}

TEST_F(Signals, AskForOneSave) {
  EXPECT_FALSE(take_save_request());
  raise(SIGUSR1);
  EXPECT_TRUE(take_save_request());
  EXPECT_FALSE(take_save_request());
}

}  // namespace
}  // namespace tandem

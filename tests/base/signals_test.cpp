#include "tandem/base/signals.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace tandem::signals_test {

class Signals : public ::testing::Test {
 protected:
  Signals() {
    for (int i = 0; i < 4; ++i) {
      sigaction(kNumbers[i], nullptr, &before_[i]);
    }
    catch_signals();
  }
  ~Signals() override {
    for (int i = 0; i < 4; ++i) {
      sigaction(kNumbers[i], &before_[i], nullptr);
    }
  }

  static constexpr int kNumbers[4] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
  struct sigaction before_[4]{};
};

TEST_F(Signals, StopSignalReturnsTheSignal) {
  raise(SIGTERM);
  EXPECT_EQ(stop_signal(), SIGTERM);
  raise(SIGINT);
  EXPECT_EQ(stop_signal(), SIGINT);
  raise(SIGHUP);
  EXPECT_EQ(stop_signal(), SIGHUP);
}

TEST_F(Signals, AnIgnoredHangupStaysIgnored) {
  EXPECT_FALSE(ignores_hangup());
  signal(SIGHUP, SIG_IGN);
  EXPECT_TRUE(ignores_hangup());
  catch_signals();
  raise(SIGTERM);
  raise(SIGHUP);
  EXPECT_EQ(stop_signal(), SIGTERM);
}

TEST_F(Signals, Sigusr1RequestsOneSave) {
  EXPECT_FALSE(take_save_request());
  raise(SIGUSR1);
  EXPECT_TRUE(take_save_request());
  EXPECT_FALSE(take_save_request());
}

TEST_F(Signals, Sigusr1RequestsToStopIfThatIsSet) {
  raise(SIGTERM);
  // A signal that came before the settings were read.
  raise(SIGUSR1);
  stop_on_sigusr1(true);
  EXPECT_EQ(stop_signal(), SIGUSR1);
  raise(SIGINT);
  raise(SIGUSR1);
  EXPECT_EQ(stop_signal(), SIGUSR1);
  EXPECT_FALSE(take_save_request());
  stop_on_sigusr1(false);
  raise(SIGUSR1);
  EXPECT_TRUE(take_save_request());
}

}  // namespace tandem::signals_test

#include "tandem/base/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>

#include "tests/base/test_tools.h"

namespace tandem::signals_test {

class Signals : public ::testing::Test {
 protected:
  Signals() {
    pthread_sigmask(SIG_SETMASK, nullptr, &mask_);
    for (int i = 0; i < 4; ++i) {
      sigaction(kNumbers[i], nullptr, &before_[i]);
    }
    catch_signals();
  }
  ~Signals() override {
    for (int i = 0; i < 4; ++i) {
      sigaction(kNumbers[i], &before_[i], nullptr);
    }
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }

  static constexpr int kNumbers[4] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
  sigset_t mask_{};
  struct sigaction before_[4]{};
};

void send(int number) {
  kill(getpid(), number);
}

bool stops_by(int number) {
  return eventually([&] { return stop_signal() == number; });
}

bool requests_save() {
  return eventually([] { return take_save_request(); });
}

TEST_F(Signals, StopSignalReturnsTheSignal) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    send(number);
    EXPECT_TRUE(stops_by(number)) << number;
  }
}

TEST_F(Signals, HeldSignalsArriveWhenTheyAreCaught) {
  EXPECT_EQ(
      code_of_child([] {
        for (const int number : kNumbers) {
          signal(number, SIG_DFL);
        }
        hold_signals();
        send(SIGTERM);
        send(SIGUSR1);
        catch_signals();
        return stops_by(SIGTERM) && requests_save() ? 0 : 1;
      }),
      0);
}

TEST_F(Signals, CanEndTheProcessWithACode) {
  EXPECT_EQ(
      code_of_child([] {
        hold_signals();
        send(SIGINT);
        exit_on_signals(75, "stopped");
        return 0;
      }),
      75);
}

TEST_F(Signals, AnIgnoredHangupStaysIgnored) {
  EXPECT_FALSE(ignores_hangup());
  signal(SIGHUP, SIG_IGN);
  EXPECT_TRUE(ignores_hangup());
  catch_signals();
  send(SIGTERM);
  EXPECT_TRUE(stops_by(SIGTERM));
  send(SIGHUP);
  send(SIGUSR1);
  EXPECT_TRUE(requests_save());
  EXPECT_EQ(stop_signal(), SIGTERM);
}

TEST_F(Signals, Sigusr1RequestsOneSave) {
  EXPECT_FALSE(take_save_request());
  send(SIGUSR1);
  EXPECT_TRUE(requests_save());
  EXPECT_FALSE(take_save_request());
}

TEST_F(Signals, Sigusr1RequestsToStopIfThatIsSet) {
  send(SIGTERM);
  EXPECT_TRUE(stops_by(SIGTERM));
  stop_on_sigusr1(true);
  send(SIGUSR1);
  EXPECT_TRUE(stops_by(SIGUSR1));
  EXPECT_FALSE(take_save_request());
  stop_on_sigusr1(false);
  send(SIGUSR1);
  EXPECT_TRUE(requests_save());
}

TEST_F(Signals, ArriveInOneThreadThatDoesNothingElse) {
  std::promise<void> end;
  std::thread other([&] { end.get_future().wait(); });
  const auto masks = blocked_signals();
  end.set_value();
  other.join();
  for (const int number : kNumbers) {
    EXPECT_EQ(
        std::count_if(
            masks.begin(), masks.end(),
            [&](uint64_t mask) { return ((mask >> (number - 1)) & 1) == 0; }),
        1)
        << number;
  }
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  EXPECT_TRUE(sigismember(&own, SIGTERM));
}

TEST_F(Signals, ArriveInTheMainThreadOfAForkedChild) {
  const int code = code_of_child([] {
    raise(SIGTERM);
    return stop_signal();
  });
  EXPECT_EQ(code, SIGTERM);
}

TEST_F(Signals, Sigusr1RequestsToStopIfThatIsSetLater) {
  const int code = code_of_child([] {
    raise(SIGUSR1);
    stop_on_sigusr1(true);
    return stop_signal();
  });
  EXPECT_EQ(code, SIGUSR1);
}

TEST_F(Signals, EndTheProcessTheSecondTime) {
  const int code = code_of_child([] {
    catch_signals();
    send(SIGINT);
    if (stops_by(SIGINT)) {
      send(SIGINT);
      pause();
    }
    return 1;
  });
  EXPECT_EQ(code, 1000 + SIGINT);
}

}  // namespace tandem::signals_test

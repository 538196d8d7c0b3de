// Signals that arrive while a rank computes.

#include <ATen/Parallel.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "tandem/base/signals.h"
#include "tandem/exec/stage_executor.h"
#include "tests/base/test_tools.h"

namespace tandem::signal_test {

// Returns whether a network's loss stays the same on two threads while SIGUSR1 arrives
// repeatedly.
bool loss_stays_the_same() {
  at::set_num_threads(2);
  ModelOptions options;
  options.seed = 3;
  const auto model = make_model(ModelKind::convnet, options);
  ModelArenas arenas(model->parameters(), model->buffers());
  const auto executor = make_compiled_executor(*model, arenas, {});
  Batch batch;
  batch.inputs = at::linspace(0, 900, 32 * 784).sin().view({32, 1, 28, 28});
  batch.targets = at::zeros({32}, at::kLong);
  batch.global_count = 32;
  const StepContext context;
  const auto expected = executor->forward(0, batch, context).sums.values().loss;
  std::thread([] {
    // This thread must not receive its own signals.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    while (true) {
      kill(getpid(), SIGUSR1);
      usleep(20);
    }
  }).detach();
  for (int i = 0; i < 300; ++i) {
    if (executor->forward(0, batch, context).sums.values().loss != expected) {
      return false;
    }
  }
  return true;
}

// Returns the number of threads that may receive SIGUSR1.
int64_t num_receivers() {
  const auto masks = blocked_signals();
  return std::count_if(masks.begin(), masks.end(), [](uint64_t mask) {
    return ((mask >> (SIGUSR1 - 1)) & 1) == 0;
  });
}

// oneDNN's products move the stack pointer into a buffer on the heap. A handler on this
// stack would overwrite the memory below. The damage is rarely noticed, so the test
// also checks that no thread of LibTorch receives signals.
TEST(SignalsWhileARankComputes, DoNotChangeResults) {
  // LibTorch's threads must start after catch_signals(), so the test uses a new
  // process.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto before = num_receivers();
        catch_signals();
        const bool same = loss_stays_the_same();
        std::exit(num_receivers() != before ? 1 : same && take_save_request() ? 0 : 2);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace tandem::signal_test

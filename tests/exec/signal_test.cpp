// Signals that arrive while a rank computes.

#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tandem/base/signals.h"
#include "tandem/exec/stage_executor.h"

namespace tandem::signal_test {

// Sends SIGUSR1 to this process repeatedly while the object exists.
class Storm {
 public:
  Storm() {
    sigaction(SIGUSR1, nullptr, &before_);
    catch_signals();
    thread_ = std::thread([this] {
      sigset_t own;
      sigemptyset(&own);
      sigaddset(&own, SIGUSR1);
      pthread_sigmask(SIG_BLOCK, &own, nullptr);
      while (!over_) {
        kill(getpid(), SIGUSR1);
        usleep(20);
      }
    });
  }
  ~Storm() {
    over_ = true;
    thread_.join();
    sigaction(SIGUSR1, &before_, nullptr);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
      signal(number, SIG_DFL);
    }
  }
  Storm(const Storm&) = delete;
  Storm& operator=(const Storm&) = delete;

 private:
  struct sigaction before_ {};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// oneDNN's products move the stack pointer into a buffer on the heap. A handler on this
// stack would overwrite the memory below.
TEST(SignalsWhileARankComputes, DoNotChangeResults) {
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
  const Storm storm;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(executor->forward(0, batch, context).sums.values().loss, expected) << i;
  }
  EXPECT_TRUE(take_save_request());
}

}  // namespace tandem::signal_test

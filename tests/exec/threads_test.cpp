// The number of a rank's threads does not change results.

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tandem/core/parallel.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/optim/optimizer.h"
#include "tests/exec/rig.h"
#include "tests/exec/threads.h"

namespace tandem::threads_test {

// Returns parameters, buffers and gradients after two steps.
std::vector<NamedTensor> trained(ModelKind kind, Precision precision, int num_threads) {
  const Threads threads(num_threads);
  ModelOptions options;
  options.input = kind == ModelKind::lenet3x3 ? std::vector<int64_t>{1, 32, 32}
                                              : std::vector<int64_t>{1, 28, 28};
  options.seed = 3;
  StageOptions stage;
  stage.loss.kind = row_of(kind).loss;
  ExecOptions exec;
  exec.precision = precision;
  stage.numerics = numerics_of(exec);
  Rig rig(make_model(kind, options), &make_compiled_executor, stage);
  ModelArenas& arenas = rig.arenas;
  const auto optimizer =
      make_optimizer({}, arenas.parameters(), arenas.gradients(), {{}});
  const auto trainable = arenas.parameters().layout().trainable_ranges();
  StepContext context;
  context.seed = 11;
  context.training = true;
  context.loss_weight = 1.0 / 61;
  const Batch batch = image_batch(options.input, 0, 61);
  for (int64_t step = 1; step <= 2; ++step) {
    rig.executor->zero_gradients();
    rig.step(batch, context);
    for (const auto& range : trainable) {
      StepScalars update;
      update.lr = 0.1;
      update.step = step;
      optimizer->update(range, update);
      rig.executor->parameters_changed(range);
    }
  }
  std::vector<NamedTensor> found;
  for (const auto& named : arenas.state()) {
    found.push_back({named.name, named.tensor.clone()});
  }
  const auto& slots = arenas.gradients().layout().slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    found.push_back(
        {"gradient of " + slots[i].name, arenas.gradients().view(i).clone()});
  }
  return found;
}

// Only GCC's OpenMP divides a loop among threads (tandem/CMakeLists.txt).
class ParallelFor : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__clang__)
    GTEST_SKIP() << "clang compiled this build; with g++: scripts/test -R ParallelFor";
#endif
  }
};

TEST_F(ParallelFor, UsesAllThreadsAndCoversEachIndexOnce) {
  for (const int count : {1, 2, 3}) {
    const Threads threads(count);
    std::mutex mutex;
    std::set<std::thread::id> ids;
    std::vector<int> calls(100);
    parallel_for(0, 100, 1, [&](int64_t first, int64_t last) {
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
      for (int64_t i = first; i < last; ++i) {
        ++calls[static_cast<size_t>(i)];
      }
    });
    EXPECT_EQ(ids.size(), static_cast<size_t>(count));
    EXPECT_EQ(calls, std::vector<int>(100, 1));
  }
}

TEST_F(ParallelFor, RethrowsAnErrorOfAPart) {
  const Threads threads(2);
  const auto fail = [](int64_t first, int64_t) {
    if (first > 0) {
      throw std::runtime_error("the second part");
    }
  };
  EXPECT_THROW(parallel_for(0, 2, 1, fail), std::runtime_error);
}

class OnednnThreads : public testing::TestWithParam<std::string> {};

TEST_P(OnednnThreads, DoNotChangeResults) {
  const ModelKind kind = *find_choice<ModelKind>(GetParam());
  for (const auto precision : {Precision::fp32, Precision::bf16}) {
    const auto expected = trained(kind, precision, 1);
    for (const int threads : {2, 3, 5}) {
      const auto found = trained(kind, precision, threads);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(found[i].tensor.equal(expected[i].tensor))
            << threads << " threads, " << name_of(precision) << ", "
            << expected[i].name;
      }
    }
  }
}

std::vector<std::string> zoo() {
  std::vector<std::string> names;
  for (const auto& choice : choices<ModelKind>()) {
    if (is_built_in(choice.value)) {
      names.emplace_back(choice.name);
    }
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(
    Zoo, OnednnThreads, testing::ValuesIn(zoo()),
    [](const auto& row) { return row.param; });

}  // namespace tandem::threads_test

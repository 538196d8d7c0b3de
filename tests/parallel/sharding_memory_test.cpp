// Memory of ranks whose optimizer state, gradients or parameters are sharded.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "tests/comm/group.h"
#include "tests/parallel/replica.h"

namespace tandem::sharding_memory_test {

constexpr double kMebibyte = 1 << 20;

// Returns the memory of this process for data, in MiB.
double resident_mib() {
  malloc_trim(0);
  std::ifstream file("/proc/self/status");
  double sum = 0;
  for (std::string line; std::getline(file, line);) {
    for (const std::string name : {"RssAnon:", "RssShmem:"}) {
      if (line.rfind(name, 0) == 0) {
        sum += std::stod(line.substr(name.size())) / 1024;
      }
    }
  }
  return sum;
}

constexpr int64_t kWidth = 1024;
constexpr int kLayers = 4;
// Parameters of float64, without biases.
constexpr double kModelMib = kLayers * kWidth * kWidth * 8 / kMebibyte;

std::unique_ptr<Model> make_stack() {
  std::vector<Layer> layers = {flatten(), linear("first", 64, kWidth)};
  for (int i = 0; i < kLayers; ++i) {
    layers.push_back(linear("fc" + std::to_string(i), kWidth, kWidth));
  }
  layers.push_back(linear("last", kWidth, 5));
  layers.push_back(log_softmax());
  return make_small_model(layers);
}

// Returns by how much two steps of Adam on all ranks raise this process's memory, in
// MiB.
double trained_mib(const std::string& backend, int size, Sharding shard) {
  const double before = resident_mib();
  const auto all = on_each_rank(backend, size, [&](Communicator& comm) {
    StrategyOptions options;
    options.shard = shard;
    OptimizerOptions adam;
    adam.kind = OptimizerKind::adam;
    Replica replica(make_stack(), comm, options, adam);
    replica.strategy->start();
    StepContext context = step_of(1e-5);
    for (; context.step < 2; ++context.step) {
      replica.strategy->train_step(
          {first_batch(4, comm.size(), comm.rank(), context.step)}, context);
    }
    comm.barrier();
    const double after = resident_mib();
    comm.barrier();
    return after - before;
  });
  return *std::min_element(all.begin(), all.end());
}

// Ranks are threads of one process, so the process has the memory of all ranks: copies
// of the parameters, of the gradients, and of Adam's two values per parameter.
TEST(ShardingMemory, HasOneCopyOfShardedValues) {
  constexpr int kRanks = 4;
  const auto expect_copies = [&](Sharding shard, int copies) {
    const double mib = trained_mib("thread", kRanks, shard);
    EXPECT_GT(mib, copies * kModelMib * 0.9) << name_of(shard);
    // Less than with unsharded optimizer state, gradients or parameters. Threads keep
    // some freed memory.
    EXPECT_LT(mib, (copies + 2.5) * kModelMib) << name_of(shard);
  };
  expect_copies(Sharding::none, 4 * kRanks);
  expect_copies(Sharding::optimizer, 2 * kRanks + 2);
  expect_copies(Sharding::gradients, kRanks + 3);
  expect_copies(Sharding::parameters, 4);
}

}  // namespace tandem::sharding_memory_test

// Memory of ranks whose optimizer state, gradients or parameters are sharded.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/graph/pt2.h"
#include "tandem/graph/pt2_writer.h"
#include "tandem/parallel/update/sharded_parameters.h"
#include "tests/comm/group.h"
#include "tests/parallel/replica.h"
#include "tests/scratch.h"

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

// Returns the largest memory of this process since the last call, in MiB.
double peak_mib() {
  malloc_trim(0);
  double peak = 0;
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmHWM:", 0) == 0) {
      peak = std::stod(line.substr(6)) / 1024;
    }
  }
  std::ofstream("/proc/self/clear_refs") << 5;
  return peak;
}

// Returns by how much `action` on all ranks raises the peak memory of this process.
double raised_mib(Communicator& comm, const std::function<void()>& action) {
  comm.barrier();
  if (comm.rank() == 0) {
    peak_mib();
  }
  comm.barrier();
  const double before = comm.rank() == 0 ? peak_mib() : 0;
  comm.barrier();
  action();
  comm.barrier();
  return comm.rank() == 0 ? peak_mib() - before : 0;
}

// Rank 0 has the values. The parameters of other ranks have no memory yet.
TEST(ShardingMemory, StartsWithOneCompleteCopy) {
  constexpr int kTensors = 8;
  const auto raised = on_each_rank("thread", 4, [](Communicator& comm) {
    std::vector<NamedTensor> parameters;
    for (int i = 0; i < kTensors; ++i) {
      const auto name = "weight" + std::to_string(i);
      auto values = at::empty({kWidth, kWidth}, at::kDouble);
      if (comm.rank() == 0) {
        values.fill_(i + 1);
      }
      parameters.push_back({name, values.requires_grad_()});
    }
    ModelArenaOptions options;
    options.divisor = comm.size();
    options.bucket_bytes = 0;
    options.copy_parameters = comm.rank() == 0;
    std::unique_ptr<ModelArenas> arenas;
    std::unique_ptr<ShardedParameters> sharded;
    const double mib = raised_mib(comm, [&] {
      arenas = std::make_unique<ModelArenas>(
          parameters, std::vector<NamedTensor>(), options);
      sharded = std::make_unique<ShardedParameters>(comm, arenas->parameters());
      sharded->distribute(comm);
    });
    sharded->gather();
    for (int i = 0; i < kTensors; ++i) {
      TANDEM_CHECK((parameters[i].tensor == i + 1).all().item<bool>(), "values");
    }
    return mib;
  })[0];
  const double whole = kTensors * kWidth * kWidth * 8 / kMebibyte;
  EXPECT_GT(raised, 0.5 * whole);
  EXPECT_LT(raised, 2 * whole);
}

TEST(ShardingMemory, UnreadNetworkFilesUseNoMemory) {
  const Scratch scratch;
  const auto path = scratch / "net.pt2";
  write_pt2(path, *make_stack()->graph());
  const auto comm = make_single_communicator();
  const auto raised = [&](StateValues values) {
    std::optional<Graph> graph;
    return raised_mib(*comm, [&] { graph = read_pt2(path, values); });
  };
  EXPECT_GT(raised(StateValues::read), 0.9 * kModelMib);
  EXPECT_LT(raised(StateValues::unread), 0.3 * kModelMib);
}

struct Raised {
  double save = 0;
  double load = 0;
};

// Saves a checkpoint of trained ranks without copies of their shares, and loads it into
// other ranks.
Raised raised_by_checkpoint(int size, Sharding shard, const std::string& directory) {
  return on_each_rank("thread", size, [&](Communicator& comm) {
    StrategyOptions options;
    options.shard = shard;
    OptimizerOptions adam;
    adam.kind = OptimizerKind::adam;
    const CheckpointShare share{
        comm.rank(), comm.size(), shard == Sharding::parameters, true, 1};
    Raised raised;
    {
      Replica replica(make_stack(), comm, options, adam);
      replica.strategy->start();
      replica.strategy->train_step(
          {first_batch(4, comm.size(), comm.rank())}, step_of(1e-5));
      raised.save = raised_mib(
          comm, [&] { replica.strategy->visit_state([](const TrainingState&) {}); });
      CheckpointContent mine;
      replica.strategy->visit_state([&](const TrainingState& piece) {
        for (const auto& [name, tensor] : piece.model) {
          mine.state.model.push_back({name, tensor.detach().clone()});
        }
        for (const auto& [name, tensor] : piece.optimizer) {
          mine.state.optimizer.push_back({name, tensor.clone()});
        }
      });
      save_share(directory, mine, share);
    }
    comm.barrier();
    const auto path = comm.on_rank_0(
        [&] { return complete_checkpoint(directory, {}, share, {}, {}); });
    Replica replica(make_stack(), comm, options, adam);
    CheckpointContent content;
    content.state = replica.strategy->state_to_load();
    raised.load = raised_mib(comm, [&] { load_checkpoint(path, content, comm); });
    return raised;
  })[0];
}

// All ranks together have two copies of the model's size for Adam's values. During a
// load, each rank also has a tensor of another rank and its own next tensor, each a
// quarter of the model. If one rank collected the state, a save would need two or, with
// the parameters, three copies, and a load at least three copies on each rank.
TEST(ShardingMemory, CheckpointsNeedNoRankWithTheWholeState) {
  constexpr int kRanks = 4;
  for (const auto shard : {Sharding::optimizer, Sharding::parameters}) {
    const Scratch scratch;
    const auto raised = raised_by_checkpoint(kRanks, shard, scratch.path());
    EXPECT_LT(raised.save, 1.25 * kModelMib) << name_of(shard);
    EXPECT_GT(raised.load, 1.5 * kModelMib) << name_of(shard);
    EXPECT_LT(raised.load, 10 * kModelMib) << name_of(shard);
  }
}

}  // namespace tandem::sharding_memory_test

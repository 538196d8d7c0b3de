// Ranks that each have a device and meet over NCCL in the steps that their devices
// capture: devices in main memory (far_device.h), and an NCCL there (fake_nccl.h),
// whose operations a graph holds.

#include <c10/core/DeviceGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/comm/backends/device.h"
#include "tandem/comm/nccl/nccl_communicator.h"
#include "tandem/train/captured_steps.h"
#include "tests/comm/group.h"
#include "tests/device/far_device.h"
#include "tests/parallel/replica.h"

namespace tandem::far_ranks_graph_test {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kSteps = 7;

struct RankSteps {
  std::string hash;
  int64_t launched = 0;
  int64_t operations = 0;
  std::vector<std::string> said;
};

// A rank's steps on its part of each batch, the rate another one in each.
RankSteps steps_of(
    Communicator& comm, const RunOptions& options, const Placement& placement,
    bool captured) {
  RankSteps found;
  Replica replica(
      make_small_model(options.layers), comm, options.strategy, options.optimizer,
      options.loss, options.scaled, placement);
  CapturedSteps steps(
      *replica.strategy, replica.arenas, captured,
      [&](const std::string& line) { found.said.push_back(line); });
  replica.strategy->start();
  const Dataset data = noise_images(8 * kSteps * comm.size());
  LoaderOptions loading;
  loading.batch_size = 8;
  loading.images = copy_to_device(data, placement);
  SamplerOptions sampler;
  sampler.num_shards = comm.size();
  sampler.shard = comm.rank();
  Loader loader(data, sampler, loading);
  StepContext context;
  loader.seek(0);
  for (Batch batch; loader.next(batch); ++context.step) {
    context.lr = 0.05 / static_cast<double>(1 + context.step);
    steps.train_step({batch}, context);
  }
  found.hash = replica.arenas.parameters_sha256();
  found.launched = steps.num_launched();
  found.operations = comm.stats().operations;
  return found;
}

// `captures`: whether a rank does.
std::vector<RankSteps> steps_of_ranks(
    int size, const RunOptions& options, const std::function<bool(int rank)>& captures,
    bool over_nccl = true) {
  FakeDevices devices(
      static_cast<uint64_t>(size), FakeDevices::Caller::host, &open_far_memory);
  const TestStore store;
  NcclOptions nccl;
  nccl.timeout = nccl.forming_timeout = std::chrono::milliseconds(60'000);
  auto found = on_each_rank("thread", size, [&](Communicator& host) {
    const int rank = host.rank();
    const c10::DeviceGuard guard(far_device(rank));
    const Placement placement{
        far_device(rank), far_kernels([&devices, rank](const auto& work) {
          devices.capture(rank, work, &note_in_far_capture);
        })};
    const auto comm = make_device_communicator(
        host.split(0), over_nccl ? make_nccl_communicator(
                                       devices.device(rank, far_device(rank)),
                                       store.client(), "far", rank, size, nccl)
                                 : nullptr);
    return steps_of(*comm, options, placement, captures(rank));
  });
  EXPECT_THAT(devices.misuse(), IsEmpty());
  EXPECT_EQ(devices.num_alive(), 0);
  return found;
}

struct Way {
  const char* name;
  int ranks;
  void (*change)(RunOptions& options);
};

void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

class FarRanksGraph : public testing::TestWithParam<Way> {};

TEST_P(FarRanksGraph, HasTheBitsOfStepsOneByOneAlsoBesideRanksThatMakeThoseSo) {
  RunOptions options;
  GetParam().change(options);
  const int ranks = GetParam().ranks;
  const auto expected = steps_of_ranks(ranks, options, [](int) { return false; });
  const auto all = steps_of_ranks(ranks, options, [](int) { return true; });
  const auto one = steps_of_ranks(ranks, options, [](int rank) { return rank == 1; });
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    EXPECT_EQ(expected[rank].launched, 0);
    EXPECT_EQ(all[rank].launched, kSteps - CapturedSteps::kStepsBefore);
    EXPECT_EQ(one[rank].launched, rank == 1 ? all[rank].launched : 0);
    EXPECT_THAT(all[rank].said, IsEmpty());
    for (const auto& found : {all[rank], one[rank]}) {
      EXPECT_EQ(found.hash, expected[rank].hash) << rank;
      EXPECT_EQ(found.operations, expected[rank].operations) << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, FarRanksGraph,
    testing::Values(
        Way{"two", 2, [](RunOptions&) {}},
        Way{"three_in_small_buckets", 3,
            [](RunOptions& options) { options.strategy.bucket_bytes = 1024; }},
        Way{"sharded_optimizer", 3,
            [](RunOptions& options) {
              options.strategy.optimizer_state = OptimizerState::sharded;
              options.optimizer.kind = OptimizerKind::adamw;
              options.optimizer.momentum = 0;
            }},
        Way{"clipped_bf16_buckets", 4,
            [](RunOptions& options) {
              options.strategy.clip_norm = 0.1;
              options.strategy.comm_hook = CommHook::bf16;
            }}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(FarRanksGraphObstacle, RanksThatMeetThroughMainMemorySaySoAndGoOn) {
  const auto found = steps_of_ranks(
      2, {}, [](int) { return true; }, /*over_nccl=*/false);
  for (const auto& rank : found) {
    EXPECT_EQ(rank.launched, 0);
    EXPECT_THAT(
        rank.said,
        ElementsAre(HasSubstr("one by one, not as a graph: ranks meet over thread")));
  }
}

}  // namespace tandem::far_ranks_graph_test

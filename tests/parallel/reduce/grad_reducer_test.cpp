#include "tandem/parallel/reduce/grad_reducer.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::grad_reducer_test {

using testing::ElementsAre;
using testing::IsEmpty;

// A group of two that only records the sizes of reductions.
class NotingCommunicator : public Communicator {
 public:
  NotingCommunicator() : Communicator(0, 2, "noting") {}

  std::vector<int64_t> launched;
  int waits = 0;
  bool fails = false;

 protected:
  WorkPtr do_all_reduce(at::Tensor tensor, ReduceOp op) override {
    TANDEM_CHECK(op == ReduceOp::sum, "gradients are summed");
    launched.push_back(tensor.numel());
    return std::make_shared<NotedWork>(*this);
  }
  WorkPtr do_broadcast(at::Tensor, int) override {
    return nullptr;
  }
  WorkPtr do_reduce_scatter(at::Tensor, at::Tensor) override {
    return nullptr;
  }
  WorkPtr do_all_gather(at::Tensor, at::Tensor) override {
    return nullptr;
  }
  WorkPtr do_scatter(at::Tensor, at::Tensor, int) override {
    return nullptr;
  }
  WorkPtr do_gather(at::Tensor, at::Tensor, int) override {
    return nullptr;
  }
  WorkPtr do_send(at::Tensor, int, int) override {
    return nullptr;
  }
  WorkPtr do_recv(at::Tensor, int, int) override {
    return nullptr;
  }
  std::unique_ptr<Communicator> do_split(int) override {
    return nullptr;
  }

 private:
  struct NotedWork : Work {
    explicit NotedWork(NotingCommunicator& comm) : owner(comm) {}
    bool test() override {
      return true;
    }
    void wait(std::chrono::milliseconds) override {
      ++owner.waits;
      if (owner.fails) {
        throw std::runtime_error("cable cut");
      }
    }
    NotingCommunicator& owner;
  };
};

// Slots of 16, 32, 48 and 64 floats, so that sizes identify buckets, and a frozen slot.
struct Reduction {
  explicit Reduction(
      int64_t bucket_bytes = 1, bool during_backward = true,
      SumGoesTo goes_to = SumGoesTo::all_ranks)
      : gradients(layout(bucket_bytes), "gradients"),
        reducer(comm, gradients, during_backward, {}, goes_to) {}

  static std::shared_ptr<const ArenaLayout> layout(int64_t bucket_bytes) {
    std::vector<NamedTensor> tensors;
    for (int64_t size = 1; size <= 5; ++size) {
      tensors.push_back(
          {"p" + std::to_string(size),
           at::zeros({16 * size}).set_requires_grad(size < 5)});
    }
    return std::make_shared<ArenaLayout>(
        tensors, std::vector<int64_t>{}, 1, c10::nullopt, bucket_bytes);
  }

  NotingCommunicator comm;
  Arena gradients;
  GradReducer reducer;
};

TEST(GradReducer, LaunchesInPlanOrder) {
  std::vector<size_t> order = {0, 1, 2, 3};
  do {
    Reduction reduction;
    reduction.reducer.begin(nullptr);
    for (const size_t slot : order) {
      reduction.reducer.gradient_ready(slot);
    }
    EXPECT_THAT(
        reduction.comm.launched, ElementsAre(16, 32, 48, 64));  // before finish()
    reduction.reducer.finish();
    EXPECT_THAT(reduction.comm.launched, ElementsAre(16, 32, 48, 64));
    EXPECT_EQ(reduction.comm.waits, 4);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(GradReducer, FullBucketWaitsForEarlierBuckets) {
  Reduction reduction;
  auto& launched = reduction.comm.launched;
  reduction.reducer.begin(nullptr);
  reduction.reducer.gradient_ready(2);
  EXPECT_THAT(launched, IsEmpty());
  reduction.reducer.gradient_ready(0);
  EXPECT_THAT(launched, ElementsAre(16));
  reduction.reducer.gradient_ready(1);
  EXPECT_THAT(launched, ElementsAre(16, 32, 48));
  EXPECT_EQ(reduction.comm.waits, 0);
}

TEST(GradReducer, BucketIsSentWithItsLastGradient) {
  // Slots 0 to 2 make a bucket of 96 floats, slot 3 one of 64 floats.
  Reduction reduction(96 * 4);
  auto& launched = reduction.comm.launched;
  ASSERT_EQ(reduction.reducer.buckets().size(), 2u);
  reduction.reducer.begin(nullptr);
  reduction.reducer.gradient_ready(1);
  reduction.reducer.gradient_ready(2);
  EXPECT_THAT(launched, IsEmpty());
  reduction.reducer.gradient_ready(0);
  EXPECT_THAT(launched, ElementsAre(96));
  reduction.reducer.gradient_ready(3);
  EXPECT_THAT(launched, ElementsAre(96, 64));
}

TEST(GradReducer, BucketsOfUnusedParametersAreSentAtFinish) {
  Reduction reduction;
  reduction.reducer.begin(nullptr);
  for (const size_t slot : {3, 2, 0}) {  // slot 1 is unused
    reduction.reducer.gradient_ready(slot);
  }
  EXPECT_THAT(reduction.comm.launched, ElementsAre(16));
  reduction.reducer.finish();
  EXPECT_THAT(reduction.comm.launched, ElementsAre(16, 32, 48, 64));
  EXPECT_EQ(reduction.comm.waits, 4);

  Reduction none;
  none.reducer.begin(nullptr);
  none.reducer.finish();
  EXPECT_THAT(none.comm.launched, ElementsAre(16, 32, 48, 64));
}

TEST(GradReducer, SendsInFinishIfNotDuringBackward) {
  Reduction reduction(1, false);
  reduction.reducer.begin(nullptr);
  for (const size_t slot : {0, 1, 2, 3}) {
    reduction.reducer.gradient_ready(slot);
  }
  EXPECT_THAT(reduction.comm.launched, IsEmpty());
  reduction.reducer.finish();
  EXPECT_THAT(reduction.comm.launched, ElementsAre(16, 32, 48, 64));
}

TEST(GradReducer, BeginResetsTheReduction) {
  Reduction reduction;
  auto& launched = reduction.comm.launched;
  reduction.reducer.begin(nullptr);
  reduction.reducer.gradient_ready(0);
  reduction.reducer.finish();
  launched.clear();
  reduction.reducer.begin(nullptr);
  EXPECT_THAT(launched, IsEmpty());
  reduction.reducer.gradient_ready(1);
  EXPECT_THAT(launched, IsEmpty());
  reduction.reducer.gradient_ready(0);
  EXPECT_THAT(launched, ElementsAre(16, 32));
  reduction.reducer.finish();
  EXPECT_THAT(launched, ElementsAre(16, 32, 48, 64));
}

TEST(GradReducer, IgnoresFrozenParameters) {
  Reduction reduction;
  reduction.reducer.begin(nullptr);
  reduction.reducer.gradient_ready(4);
  EXPECT_THAT(reduction.comm.launched, IsEmpty());
  reduction.reducer.finish();
  EXPECT_THAT(reduction.comm.launched, ElementsAre(16, 32, 48, 64));
}

TEST(GradReducer, ErrorNamesTheBucket) {
  Reduction reduction;
  reduction.comm.fails = true;
  reduction.reducer.begin(nullptr);
  expect_error<CommError>(
      [&] { reduction.reducer.finish(); }, {"bucket 0", "cable cut"});
}

TEST(GradReducer, TraceHasTheStartOfEachReductionWithItsBytes) {
  Reduction reduction;
  Trace trace;
  reduction.reducer.begin(&trace);
  reduction.reducer.finish();
  const auto spans = trace.compute_spans();
  ASSERT_EQ(spans.size(), 5u);
  EXPECT_EQ(spans[0].name, "finish reductions");
  EXPECT_EQ(spans[3].category, "reduce");
  EXPECT_EQ(spans[3].name, "bucket 2");
  EXPECT_EQ(spans[3].bytes, 192);
}

TEST(GradReducer, TraceOfTheGroupHasEachReductionItsLaunchAndItsWait) {
  Reduction reduction;
  Trace trace;
  reduction.comm.set_trace(&trace);
  reduction.reducer.begin(nullptr);
  reduction.reducer.finish();
  EXPECT_TRUE(trace.operations().empty()) << "outside of a section";
  {
    const TraceSection section(&trace, "user_annotation", "step");
    reduction.reducer.begin(nullptr);
    reduction.reducer.finish();
  }
  const auto operations = trace.operations();
  ASSERT_EQ(operations.size(), 4u);
  EXPECT_EQ(operations[2].category, "all_reduce");
  EXPECT_EQ(operations[2].name, "bucket 2");
  EXPECT_EQ(operations[2].bytes, 192);
  const auto spans = trace.compute_spans();
  ASSERT_EQ(spans.size(), 9u);
  EXPECT_EQ(spans[0].name, "step");
  EXPECT_EQ(spans[3].category, "launch");
  EXPECT_EQ(spans[3].name, "launch bucket 2");
  EXPECT_EQ(spans[7].category, "wait");
  EXPECT_EQ(spans[7].name, "wait bucket 2");
}

}  // namespace tandem::grad_reducer_test

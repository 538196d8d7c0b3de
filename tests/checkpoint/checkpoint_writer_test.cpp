#include "tandem/checkpoint/checkpoint_writer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <string>
#include <thread>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/checkpoint/checkpoint_names.h"
#include "tests/base/test_tools.h"
#include "tests/scratch.h"

namespace tandem::checkpoint_writer_test {

using testing::HasSubstr;

CheckpointContent content_of(const at::Tensor& weight, int64_t step) {
  CheckpointContent content;
  content.state.model = {{"weight", weight}};
  content.state.optimizer = {{"momentum/weight", weight + 1}};
  content.position.step = step;
  return content;
}

class CheckpointWriters : public testing::Test {
 protected:
  at::Tensor loaded(int64_t step, const at::Tensor& like) const {
    auto content = content_of(at::full(like.sizes(), 0.0, like.options()), 0);
    load_checkpoint(
        checkpoint_path(directory_, step), content, *make_single_communicator());
    EXPECT_TRUE(
        content.state.optimizer[0].tensor.equal(content.state.model[0].tensor + 1));
    return content.state.model[0].tensor;
  }

  Scratch scratch_;
  std::string directory_ = scratch_ / "checkpoints";
};

TEST_F(CheckpointWriters, SaveTheStateAtTheStart) {
  const auto weight = at::arange(4'000'000, at::kFloat);
  const auto before = weight.clone();
  CheckpointWriter writer;
  writer.start(directory_, content_of(weight, 7), {});
  weight.fill_(-1);
  const auto outcome = writer.wait();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->error, nullptr);
  EXPECT_EQ(outcome->path, checkpoint_path(directory_, 7));
  EXPECT_EQ(outcome->step, 7);
  EXPECT_TRUE(loaded(7, weight).equal(before));
}

TEST_F(CheckpointWriters, ReturnEachOutcomeOnce) {
  CheckpointWriter writer;
  EXPECT_FALSE(writer.poll().has_value());
  EXPECT_FALSE(writer.wait().has_value());
  for (int64_t step = 1; step <= 3; ++step) {
    writer.start(
        directory_, content_of(at::full({3}, static_cast<double>(step)), step), {2});
    std::optional<SaveOutcome> outcome;
    while (!outcome) {
      outcome = writer.poll();
      std::this_thread::yield();
    }
    EXPECT_EQ(outcome->step, step);
    EXPECT_TRUE(file_exists(outcome->path));
    EXPECT_FALSE(writer.poll().has_value());
    EXPECT_FALSE(writer.wait().has_value());
  }
  EXPECT_EQ(checkpoints_in(directory_).size(), 2u);
}

TEST_F(CheckpointWriters, KeepTheirMemoryAndAcceptOtherShapes) {
  CheckpointWriter writer;
  const std::pair<int64_t, at::Tensor> states[] = {
      {1, at::full({3, 4}, 1.5)},
      {2, at::full({3, 4}, 2.5)},
      {3, at::full({5}, 3.5)},
      {4, at::full({5}, int64_t{4}, at::kLong)},
      {5, at::arange(6, at::kFloat).view({2, 3}).t()}};
  for (const auto& [step, weight] : states) {
    writer.start(directory_, content_of(weight, step), {});
    EXPECT_EQ(writer.wait()->error, nullptr);
    EXPECT_TRUE(loaded(step, weight).equal(weight)) << step;
  }
}

TEST_F(CheckpointWriters, ReportWhyASaveFailed) {
  CheckpointWriter writer;
  writer.start(directory_, content_of(at::full({3}, std::nan("")), 1), {});
  const auto outcome = writer.wait();
  EXPECT_THROW(std::rethrow_exception(outcome->error), ValuesNotFinite);
  EXPECT_THAT(reason_of(*outcome), HasSubstr("'weight' has values"));
  EXPECT_EQ(outcome->path, "");
  writer.start(directory_, content_of(at::full({3}, 1.0), 2), {});
  EXPECT_EQ(writer.wait()->error, nullptr);
}

TEST_F(CheckpointWriters, FinishASaveBeforeTheyEnd) {
  const auto weight = at::arange(4'000'000, at::kFloat);
  {
    CheckpointWriter writer;
    writer.start(directory_, content_of(weight, 7), {});
  }
  EXPECT_TRUE(loaded(7, weight).equal(weight));
}

TEST_F(CheckpointWriters, WarnOfAnUnreportedFailure) {
  testing::internal::CaptureStderr();
  {
    CheckpointWriter writer;
    writer.start(directory_, content_of(at::full({3}, std::nan("")), 41), {});
  }
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(), HasSubstr("step 41 was not saved: "));
}

TEST_F(CheckpointWriters, BlockSignalsInTheirThread) {
  const auto before = blocked_signals();
  const auto blocks = [](uint64_t mask) {
    return ((mask >> (SIGTERM - 1)) & 1) != 0 && ((mask >> (SIGUSR1 - 1)) & 1) != 0;
  };
  {
    CheckpointWriter writer;
    writer.start(directory_, content_of(at::full({3}, 0.5), 7), {});
    writer.wait();
    const auto during = blocked_signals();
    EXPECT_EQ(
        std::count_if(during.begin(), during.end(), blocks),
        std::count_if(before.begin(), before.end(), blocks) + 1);
  }
  EXPECT_EQ(blocked_signals(), before);
}

}  // namespace tandem::checkpoint_writer_test

#include "tandem/parallel/pipeline/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace tandem::pipeline_schedule_test {

using Kind = StageTask::Kind;

constexpr PipelineSchedule kSchedules[] = {
    PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward};

// Returns a stage's tasks as text, for instance "F0 F1 B0 B1".
std::string text(const std::vector<StageTask>& tasks) {
  std::string all;
  for (const auto& task : tasks) {
    all += (all.empty() ? "" : " ") +
           std::string(task.kind == Kind::forward ? "F" : "B") +
           std::to_string(task.micro_batch);
  }
  return all;
}

TEST(PipelineSchedule, GpipeRunsAllForwardsFirst) {
  for (const int64_t stage : {0, 1, 2}) {
    EXPECT_EQ(
        text(plan_stage(PipelineSchedule::gpipe, 3, stage, 3)), "F0 F1 F2 B0 B1 B2");
  }
}

TEST(PipelineSchedule, OneForwardOneBackwardMatchesItsPaper) {
  const auto plan = [](int64_t stage, int64_t micro_batches) {
    return text(plan_stage(
        PipelineSchedule::one_forward_one_backward, 3, stage, micro_batches));
  };
  EXPECT_EQ(plan(0, 5), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(plan(1, 5), "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
  EXPECT_EQ(plan(2, 5), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
  EXPECT_EQ(plan(0, 2), "F0 F1 B0 B1");
  EXPECT_EQ(plan(0, 1), "F0 B0");
  EXPECT_EQ(plan(1, 0), "");
}

struct Shape {
  PipelineSchedule schedule;
  int64_t stages;
  int64_t micro_batches;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const auto schedule : kSchedules) {
    for (const int64_t stages : {1, 2, 3, 4, 8}) {
      for (const int64_t micro_batches : {0, 1, 2, 3, 4, 7, 8, 16, 33}) {
        all.push_back({schedule, stages, micro_batches});
      }
    }
  }
  return all;
}

TEST(PipelineSchedule, EachMicroBatchRunsOnceAndInOrder) {
  for (const auto& shape : shapes()) {
    for (int64_t stage = 0; stage < shape.stages; ++stage) {
      int64_t forwards = 0;
      int64_t backwards = 0;
      for (const auto& task :
           plan_stage(shape.schedule, shape.stages, stage, shape.micro_batches)) {
        auto& next = task.kind == Kind::forward ? forwards : backwards;
        ASSERT_EQ(task.micro_batch, next);
        ++next;
        ASSERT_LE(backwards, forwards);
      }
      EXPECT_EQ(forwards, shape.micro_batches);
      EXPECT_EQ(backwards, shape.micro_batches);
    }
  }
}

TEST(PipelineSchedule, MostInFlightIsTheMaximumOfThePlan) {
  for (const auto& shape : shapes()) {
    for (int64_t stage = 0; stage < shape.stages; ++stage) {
      int64_t in_flight = 0;
      int64_t most = 0;
      for (const auto& task :
           plan_stage(shape.schedule, shape.stages, stage, shape.micro_batches)) {
        in_flight += task.kind == Kind::forward ? 1 : -1;
        most = std::max(most, in_flight);
      }
      EXPECT_EQ(
          most,
          most_in_flight(shape.schedule, shape.stages, stage, shape.micro_batches));
      const int64_t limit = shape.schedule == PipelineSchedule::gpipe
                                ? shape.micro_batches
                                : shape.stages - stage;
      EXPECT_LE(most, limit);
    }
  }
}

// Runs all stages in rounds of one task each. A task waits until its message was sent
// in an earlier round. Returns the number of rounds, or -1 if all stages wait.
int64_t rounds_of(const Shape& shape) {
  std::vector<std::vector<StageTask>> plans;
  for (int64_t stage = 0; stage < shape.stages; ++stage) {
    plans.push_back(
        plan_stage(shape.schedule, shape.stages, stage, shape.micro_batches));
  }
  using Message = std::tuple<Kind, int64_t, int64_t>;  // with the stage
  std::set<Message> sent;
  std::vector<size_t> done(plans.size(), 0);
  const auto finished = [&] {
    for (size_t stage = 0; stage < plans.size(); ++stage) {
      if (done[stage] < plans[stage].size()) {
        return false;
      }
    }
    return true;
  };
  int64_t rounds = 0;
  for (; !finished(); ++rounds) {
    std::vector<Message> sending;
    bool moved = false;
    for (int64_t stage = 0; stage < shape.stages; ++stage) {
      auto& at = done[static_cast<size_t>(stage)];
      const auto& plan = plans[static_cast<size_t>(stage)];
      if (at == plan.size()) {
        continue;
      }
      const auto& [kind, micro_batch] = plan[at];
      const bool forward = kind == Kind::forward;
      const bool source = stage == (forward ? 0 : shape.stages - 1);
      if (source || sent.count({kind, micro_batch, stage}) > 0) {
        sending.emplace_back(kind, micro_batch, forward ? stage + 1 : stage - 1);
        ++at;
        moved = true;
      }
    }
    if (!moved) {
      return -1;
    }
    sent.insert(sending.begin(), sending.end());
  }
  return rounds;
}

TEST(PipelineSchedule, PlansDoNotDeadlockAndTakeTheTimeOfTheirPapers) {
  for (const auto& shape : shapes()) {
    SCOPED_TRACE(
        std::to_string(shape.stages) + " stages, " +
        std::to_string(shape.micro_batches) + " micro-batches");
    // Filling and emptying the pipeline takes stages - 1 rounds in each direction.
    const int64_t bubble = shape.micro_batches > 0 ? 2 * (shape.stages - 1) : 0;
    EXPECT_EQ(rounds_of(shape), 2 * shape.micro_batches + bubble);
  }
}

}  // namespace tandem::pipeline_schedule_test

#include "tandem/parallel/pipeline/schedule.h"

#include <algorithm>

namespace tandem {

int64_t most_in_flight(
    PipelineSchedule schedule, int64_t stages, int64_t stage, int64_t micro_batches) {
  return schedule == PipelineSchedule::gpipe ? micro_batches
                                             : std::min(micro_batches, stages - stage);
}

std::vector<StageTask> plan_stage(
    PipelineSchedule schedule, int64_t stages, int64_t stage, int64_t micro_batches) {
  const int64_t in_flight = most_in_flight(schedule, stages, stage, micro_batches);
  std::vector<StageTask> tasks;
  for (int64_t i = 0; i < micro_batches; ++i) {
    tasks.push_back({StageTask::Kind::forward, i});
    if (i + 1 >= in_flight) {
      tasks.push_back({StageTask::Kind::backward, i + 1 - in_flight});
    }
  }
  for (int64_t i = micro_batches + 1 - in_flight; i < micro_batches; ++i) {
    tasks.push_back({StageTask::Kind::backward, i});
  }
  return tasks;
}

}  // namespace tandem

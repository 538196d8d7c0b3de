#include "tandem/train/evaluation.h"

#include <ATen/ops/zeros.h>

namespace tandem {

TestReport evaluate(
    Strategy& strategy, Communicator& comm, const Dataset& dataset,
    LoaderOptions options, int64_t limit_batches) {
  strategy.before_evaluation();
  const DataShard shard = strategy.data_shard();
  auto sums = at::zeros({3}, at::kDouble);
  // With fewer samples than ranks some have none.
  if (shard.shard >= 0 && shard.shard < dataset.size) {
    SamplerOptions sampler;
    sampler.size = dataset.size;
    sampler.num_shards = shard.num_shards;
    sampler.shard = shard.shard;
    sampler.shuffle = false;
    sampler.tail = Tail::keep;
    options.num_buffers = 1;
    Loader loader(dataset, sampler, options);
    loader.seek(0);
    StepContext context;
    context.training = false;
    Batch batch;
    for (int64_t i = 0; (limit_batches == 0 || i < limit_batches) && loader.next(batch);
         ++i) {
      sums += strategy.evaluate_batch(batch, context);
    }
  }
  comm.all_reduce(sums, ReduceOp::sum, "evaluation")->wait();
  const double* values = sums.data_ptr<double>();
  TestReport report;
  report.count = static_cast<int64_t>(values[2]);
  report.correct = static_cast<int64_t>(values[1]);
  report.loss = values[2] > 0 ? values[0] / values[2] : 0;
  return report;
}

}  // namespace tandem

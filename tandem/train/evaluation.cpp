#include "tandem/train/evaluation.h"

#include "tandem/train/report/all_ranks.h"

namespace tandem {

TestReport evaluate(
    Strategy& strategy, Communicator& comm, const Dataset& dataset,
    LoaderOptions options, int64_t limit_batches) {
  strategy.before_evaluation();
  const DataShard shard = strategy.data_shard();
  StepSums sums;
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
  const auto values = of_all_ranks(sums, comm, "evaluation").values();
  TestReport report;
  report.count = static_cast<int64_t>(values.samples);
  report.correct = static_cast<int64_t>(values.correct);
  report.loss = values.mean_loss();
  return report;
}

}  // namespace tandem

#include "tandem/train/evaluation.h"

#include <ATen/ops/full.h>
#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/train/assembly.h"
#include "tandem/train/report/all_ranks.h"

namespace tandem {

namespace {

void check_is_checkpoint(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(model_file(path), ignored)) {
    throw DataError(
        "[checkpoint] '" + path +
        "' has no model.safetensors; name a directory such as RUN/checkpoints/step-N");
  }
}

// A model takes images of one shape, which its checkpoint knows.
void check_images(
    const std::map<std::string, std::string>& description, const Dataset& data) {
  std::vector<std::string> sizes;
  for (const char* key : {"channels", "height", "width"}) {
    const auto found = description.find(key);
    if (found == description.end()) {
      return;
    }
    sizes.push_back(found->second);
  }
  const std::string wanted = join(sizes, "x");
  const std::string found =
      fmt::format("{}x{}x{}", data.channels, data.height, data.width);
  if (found != wanted) {
    throw ConfigError(
        "[data] the images of " + data.name + " are " + found +
        ", but this model was trained on " + wanted + "; choose another --data");
  }
}

}  // namespace

std::optional<TestReport> evaluate_unless(
    const std::function<bool()>& stop, Strategy& strategy, Communicator& comm,
    const Dataset& dataset, LoaderOptions options, int64_t limit_batches) {
  strategy.before_evaluation();
  const DataShard shard = strategy.data_shard();
  const bool alone = strategy.consistency() != Consistency::sharded;
  bool stopped = false;
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
    for (int64_t i = 0;
         !stopped && (limit_batches == 0 || i < limit_batches) && loader.next(batch);
         ++i) {
      sums += strategy.evaluate_batch(batch, context);
      stopped = alone && stop();
    }
  }
  auto stops = at::full({1}, stopped ? 1 : 0, at::kLong);
  comm.all_reduce(stops, ReduceOp::sum, "evaluation ends")->wait();
  const auto values = of_all_ranks(sums, comm, "evaluation").values();
  if (stops.item<int64_t>() > 0) {
    return std::nullopt;
  }
  TestReport report;
  report.count = static_cast<int64_t>(values.samples);
  report.correct = static_cast<int64_t>(values.correct);
  report.loss = values.mean_loss();
  return report;
}

TestReport evaluate(
    Strategy& strategy, Communicator& comm, const Dataset& dataset,
    LoaderOptions options, int64_t limit_batches) {
  return *evaluate_unless(
      [] { return false; }, strategy, comm, dataset, std::move(options), limit_batches);
}

TestReport evaluate_checkpoint(
    const std::string& checkpoint, const CheckpointEvaluation& options,
    std::unique_ptr<Model> model, LossFunction loss) {
  check_is_checkpoint(checkpoint);
  const auto description = load_model(checkpoint, nullptr);
  RunConfig config = config_from(description);
  if (!options.data.empty()) {
    config.data.source = options.data;
  }
  const auto splits = load_dataset(config.data.source, options.limit);
  if (model == nullptr) {
    check_images(description, splits.test);
  }
  const auto comm = make_single_communicator();
  const Assembly parts =
      assemble(config, splits.test, *comm, std::move(model), std::move(loss));
  const auto state = parts.arenas->state();
  load_model(checkpoint, &state);
  LoaderOptions loading = loader_options(config);
  loading.batch_size = options.batch_size;
  return evaluate(*parts.strategy, *comm, splits.test, loading);
}

}  // namespace tandem

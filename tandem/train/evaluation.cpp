#include "tandem/train/evaluation.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/network_file.h"
#include "tandem/train/assembly.h"
#include "tandem/train/device_limits.h"
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

// Throws ConfigError if the images do not have the shape that the model accepts. The
// checkpoint contains this shape.
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

// Sets the network file of a checkpoint's model, which is `asked` if it is not "".
void settle_network(
    ModelSettings& model, const std::string& checkpoint,
    const std::map<std::string, std::string>& description, const std::string& asked) {
  if (is_built_in(model.kind) && !asked.empty()) {
    throw ConfigError(fmt::format(
        "[model] --model is '{}', but the model of '{}' is {}; leave out --model",
        asked, checkpoint, name_of(model.kind)));
  }
  if (model.kind == ModelKind::file || !asked.empty()) {
    const auto hash = description.find(kModelHash);
    model.file = network_file_of(
        {checkpoint, model.file, hash == description.end() ? "" : hash->second}, asked);
    model.kind = ModelKind::file;
  }
}

// Stops the evaluation on all ranks after the same batch, because the stages of a
// pipeline evaluate each batch together. The ranks agree about twice a second. Rank 0
// chooses the number of batches until the next agreement.
class StopWatch {
 public:
  StopWatch(Communicator& comm, const std::function<bool()>& stop)
      : comm_(comm), stop_(stop) {}

  // Returns whether the evaluation stops after `batches` batches. Collective.
  bool stops_after(int64_t batches) {
    if (batches < next_) {
      return false;
    }
    const auto mine = at::empty({2}, at::kLong);
    mine.data_ptr<int64_t>()[0] = stop_() ? 1 : 0;
    mine.data_ptr<int64_t>()[1] = batches_until_next(batches);
    const auto all = comm_.stack(mine, "evaluation ends");
    next_ = batches + all[0][1].item<int64_t>();
    return all.select(1, 0).sum().item<int64_t>() > 0;
  }

 private:
  using Clock = std::chrono::steady_clock;

  int64_t batches_until_next(int64_t batches) const {
    constexpr double kSecondsBetween = 0.5;
    const std::chrono::duration<double> passed = Clock::now() - start_;
    const double rate = static_cast<double>(batches) / std::max(1e-6, passed.count());
    return std::max<int64_t>(1, static_cast<int64_t>(rate * kSecondsBetween));
  }

  Communicator& comm_;
  const std::function<bool()>& stop_;
  Clock::time_point start_ = Clock::now();
  int64_t next_ = 1;
};

int64_t most_of_all_ranks(int64_t mine, Communicator& comm) {
  auto most = at::full({1}, mine, at::kLong);
  comm.all_reduce(most, ReduceOp::max, "evaluation")->wait();
  return most.item<int64_t>();
}

// Returns null on a rank without samples.
std::unique_ptr<Loader> make_loader(
    const DataShard& shard, const Dataset& dataset, LoaderOptions options) {
  // With fewer samples than ranks, some ranks have none.
  if (shard.shard < 0 || shard.shard >= dataset.size) {
    return nullptr;
  }
  SamplerOptions sampler;
  sampler.size = dataset.size;
  sampler.num_shards = shard.num_shards;
  sampler.shard = shard.shard;
  sampler.shuffle = false;
  sampler.tail = Tail::keep;
  options.num_buffers = 1;
  auto loader = std::make_unique<Loader>(dataset, sampler, options);
  loader->seek(0);
  return loader;
}

}  // namespace

std::optional<TestReport> evaluate_unless(
    const std::function<bool()>& stop, Strategy& strategy, Communicator& comm,
    const Dataset& dataset, LoaderOptions options, int64_t limit_batches) {
  strategy.before_evaluation();
  const auto loader = make_loader(strategy.data_shard(), dataset, std::move(options));
  const int64_t all = most_of_all_ranks(loader ? loader->num_batches() : 0, comm);
  const int64_t count = limit_batches > 0 ? std::min(all, limit_batches) : all;
  StopWatch watch(comm, stop);
  StepContext context;
  context.training = false;
  StepSums sums;
  Batch batch;
  for (int64_t i = 0; i < count; ++i) {
    if (loader && loader->next(batch)) {
      sums += strategy.evaluate_batch(batch, context);
    }
    if (watch.stops_after(i + 1)) {
      return std::nullopt;
    }
  }
  const auto values = of_all_ranks(sums, comm, "evaluation").values();
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
  if (model == nullptr) {
    settle_network(config.model, model_file(checkpoint), description, options.network);
  }
  if (!options.data.empty()) {
    config.data.source = options.data;
  }
  Dataset test = options.dataset ? first_samples(*options.dataset, options.limit)
                                 : load_dataset(config.data.source, options.limit).test;
  // Uses the model's number of classes, because the samples may not include every
  // class.
  if (const auto found = description.find("num_classes"); found != description.end()) {
    test.num_classes = parse_number<int64_t>(found->second).value_or(test.num_classes);
  }
  check_samples(test, test.num_classes);
  if (model == nullptr) {
    check_images(description, test);
  }
  const auto comm = make_single_communicator();
  return within_device_memory(
      options.placement, smaller_batches("--batch-size", options.batch_size), [&] {
        const Assembly parts = assemble(
            config, test, *comm, std::move(model), std::move(loss), options.placement);
        const auto state = parts.arenas->state();
        load_model(checkpoint, &state, options.weights);
        LoaderOptions loading = loader_options(config);
        loading.batch_size = options.batch_size;
        use_device(loading, test, options.placement);
        return evaluate(*parts.strategy, *comm, test, loading);
      });
}

}  // namespace tandem

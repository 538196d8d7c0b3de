#include "tandem/train/evaluation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/comm/exchange.h"
#include "tandem/data/data_parts.h"
#include "tandem/data/dataset.h"
#include "tandem/data/load_dataset.h"
#include "tandem/formats/tensor_list.h"
#include "tandem/train/agreement/agreement.h"
#include "tandem/train/assembly.h"
#include "tandem/train/checkpoint_model.h"
#include "tandem/train/device_limits.h"

namespace tandem {

namespace {

// Throws ConfigError if the samples differ in shape or type from those of the training.
void check_format(const Dataset& data, const Dataset& format) {
  const auto text_of = [](const Dataset& one) {
    return (one.has_images() ? "images" : name_of(one.inputs.type)) + std::string(" ") +
           shape_text(one.inputs.shape);
  };
  if (text_of(data) != text_of(format)) {
    throw ConfigError(
        "[data] the samples of " + data.name + " are " + text_of(data) +
        ", but this model was trained on " + text_of(format) +
        "; choose another --data");
  }
}

// Returns whether the evaluation ends after `batches` batches. Collective if an
// agreement is due. All ranks end after the same batch, because the stages of a
// pipeline evaluate each batch together.
bool ends(
    const std::function<bool()>& stop, int64_t batches, AgreementTimes& times,
    Communicator& comm) {
  if (!times.is_due(batches)) {
    return false;
  }
  const auto rows = exchange_numbers({times.propose(batches)}, "evaluation ends", comm);
  times.agreed(batches, rows[0][0]);
  return stop();
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

TestReport report_of(const StepSums::Values& sums, const Metric& metric) {
  TestReport report;
  report.metric = &metric;
  report.metric_value = metric.value(sums.metric, sums.samples);
  report.count = static_cast<int64_t>(sums.samples);
  report.correct = metric.is_percentage ? static_cast<int64_t>(sums.metric) : 0;
  report.loss = sums.mean_loss();
  return report;
}

StepContext evaluation_context() {
  StepContext context;
  context.training = false;
  return context;
}

void check_is_whole(const CheckpointEvaluation& options) {
  if (options.part != DataPart::test) {
    throw ConfigError(fmt::format(
        "[predict] --split is {}, but '{}' has only inputs, without parts; leave out "
        "--split",
        name_of(options.part), options.data));
  }
}

// Gives the samples of another folder of images the classes of the training, because
// each folder numbers its own classes. If the training lacks a class and targets are
// not needed, removes the targets.
void match_classes(Dataset& data, const Dataset& format, bool needs_targets) {
  const auto& names = format.class_names;
  const auto is_known = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto& found = data.class_names;
  if (needs_targets || std::all_of(found.begin(), found.end(), is_known)) {
    renumber_classes(data, names, "the checkpoint");
  } else {
    data.targets.bytes = {};
  }
}

// Returns whether two values of `data` name the same data set: a path can be written in
// several ways.
bool is_same_source(const std::string& one, const std::string& other) {
  std::error_code error;
  return one == other || std::filesystem::equivalent(one, other, error);
}

const char* name_in_parts(DataPart part) {
  return part == DataPart::train ? "training" : name_of(part);
}

// Throws ConfigError if samples of the run's data are not those of the training. `part`
// has the samples, before a limit of the evaluation. `trained` is the value of
// kDataParts; "" if the checkpoint is older.
void check_is_same(
    const Dataset& part, const CheckpointEvaluation& options, const DataOptions& run,
    const std::string& trained) {
  const bool is_limited = options.part != DataPart::test;
  const DataParts parts = parts_of(
      name_in_parts(options.part),
      is_limited ? part : limit_samples(part, run.source, run.limit));
  if (trained.empty() || other_parts(trained, parts).empty()) {
    return;
  }
  const std::string now = to_text(parts);
  for (const auto& [name, text] : parts) {
    if (hash_in(now, name) != hash_in(trained, name)) {
      throw ConfigError(fmt::format(
          "[data] the {} of '{}' have the SHA-256 {}..., expected {}..., their SHA-256 "
          "in the training; name the data of the training or other data with --data",
          name, run.source, hash_in(now, name), hash_in(trained, name)));
    }
  }
}

Dataset load_part(
    const CheckpointEvaluation& options, const RunConfig& config, const Dataset& format,
    const std::string& trained) {
  DataRequest request(config);
  request.columns = format.columns;
  if (!format.columns.empty()) {
    request.whole_targets =
        format.has_classes() ? WholeTargets::classes : WholeTargets::values;
  }
  request.keeps_files = !options.needs_targets;
  const bool is_other =
      !options.data.empty() && !is_same_source(options.data, request.options.source);
  if (is_other) {
    check_kind_of_files(options.data, format);
  }
  if (is_other && format.has_images()) {
    request.channels = format.inputs.shape[0];
  }
  if (!options.data.empty()) {
    request.options.source = options.data;
  }
  // The training and validation parts of the run depend on its limit.
  if (is_other || options.part == DataPart::test) {
    request.options.limit = 0;
  }
  if (options.part == DataPart::test) {
    request.options.validation = 0;
  }
  if (!options.needs_targets && is_other && has_inputs(options.data)) {
    check_is_whole(options);
    return first_samples(load_inputs(request), options.limit);
  }
  request.for_training = !is_other || options.part != DataPart::test;
  auto splits = load_dataset(request);
  if (options.part == DataPart::validation && splits.validation.size == 0) {
    throw ConfigError("[data] the run has no validation part; choose another --split");
  }
  const bool takes_all = splits.test.size == 0;
  Dataset part = options.part == DataPart::validation           ? splits.validation
                 : options.part == DataPart::train || takes_all ? splits.train
                                                                : splits.test;
  if (options.data.empty()) {
    check_is_same(part, options, config.data, trained);
  }
  // Rows of predictions have the order of the files.
  return options.needs_targets
             ? limit_samples(std::move(part), request.options.source, options.limit)
             : first_samples(std::move(part), options.limit);
}

// Gives samples without targets targets of 0, because an evaluation computes a loss.
void add_targets(Dataset& data, const Dataset& format) {
  data.targets.type = format.targets.type;
  data.targets.shape = format.targets.shape;
  data.targets.bytes =
      std::vector<uint8_t>(static_cast<size_t>(data.targets.bytes_of(data.size)));
}

// Returns the samples on which a checkpoint is evaluated.
Dataset samples_of(
    const CheckpointEvaluation& options, const RunConfig& config, const Dataset& format,
    const CheckpointFacts& facts, bool checks_format) {
  const auto trained = facts.find(kDataParts);
  Dataset data = options.dataset ? first_samples(*options.dataset, options.limit)
                                 : load_part(
                                       options, config, format,
                                       trained == facts.end() ? "" : trained->second);
  if (checks_format) {
    check_format(data, format);
  }
  if (!options.dataset) {
    match_classes(data, format, options.needs_targets);
  }
  // Uses the classes of the model, because the samples may not include every class.
  // Checkpoints of a function model have only the classes of positions that occurred.
  const bool are_positions = data.has_classes() && !data.targets.shape.empty();
  data.num_classes = are_positions ? std::max(format.num_classes, data.num_classes)
                                   : format.num_classes;
  data.class_names = format.class_names;
  return data;
}

TestReport evaluate_alone(
    const Assembly& parts, const Dataset& data, LoaderOptions loading, bool has_targets,
    const std::function<void(const EvaluatedBatch&)>& after_batch) {
  const TargetScale scale(loading.target_mean, loading.target_std, data);
  const auto loader = make_loader({}, data, std::move(loading));
  const StepContext context = evaluation_context();
  StepSums sums;
  Batch batch;
  while (loader && loader->next(batch)) {
    const StageResult result = parts.executor->forward(0, batch, context);
    sums += result.sums;
    if (after_batch) {
      after_batch(
          {data, batch, result.output, parts.loss.kind, parts.loss.ignore_index,
           has_targets, scale});
    }
  }
  return report_of(sums.values(), parts.loss.metric());
}

}  // namespace

std::optional<TestReport> evaluate_unless(
    const std::function<bool()>& stop, Strategy& strategy, Communicator& comm,
    const Dataset& dataset, LoaderOptions options, const Metric& metric,
    int64_t limit_batches) {
  strategy.before_evaluation();
  const auto loader = make_loader(strategy.data_shard(), dataset, std::move(options));
  const int64_t all = reduce_count(
      loader ? loader->num_batches() : 0, ReduceOp::max, "evaluation", comm);
  const int64_t count = limit_batches > 0 ? std::min(all, limit_batches) : all;
  AgreementTimes times;
  const StepContext context = evaluation_context();
  StepSums sums;
  Batch batch;
  for (int64_t i = 0; i < count; ++i) {
    const bool has_batch = loader && loader->next(batch);
    sums += strategy.evaluate_batch(has_batch ? &batch : nullptr, context);
    if (ends(stop, i + 1, times, comm)) {
      return std::nullopt;
    }
  }
  return report_of(of_all_ranks(sums, comm, "evaluation").values(), metric);
}

TestReport evaluate(
    Strategy& strategy, Communicator& comm, const Dataset& dataset,
    LoaderOptions options, const Metric& metric, int64_t limit_batches) {
  return *evaluate_unless(
      [] { return false; }, strategy, comm, dataset, std::move(options), metric,
      limit_batches);
}

TestReport evaluate_checkpoint(
    const std::string& checkpoint, const CheckpointEvaluation& options,
    std::unique_ptr<Model> model, LossFunction loss) {
  check_is_checkpoint(checkpoint);
  // Reads the checkpoint only once, because a run that still saves may remove it.
  std::string path;
  const auto trained = read_model(checkpoint, options.weights, &path);
  const auto& description = trained.metadata;
  RunConfig config =
      model == nullptr ? config_of_checkpoint(
                             path, description, options.network, options.trusts_scripts)
                       : config_from(description);
  const Dataset format = format_from(description);
  Dataset data = samples_of(options, config, format, description, model == nullptr);
  const bool has_targets = !data.targets.bytes.empty();
  if (!has_targets && !options.needs_targets) {
    add_targets(data, format);
  }
  check_samples(data, data.num_classes, config.model.ignore_index);
  const auto comm = make_single_communicator();
  return within_device_memory(
      options.placement, smaller_batches("--batch-size", options.batch_size), [&] {
        const Assembly parts = assemble(
            config, data, *comm, std::move(model), std::move(loss), options.placement);
        const auto state = parts.arenas->state();
        check_fits("checkpoint", path, trained.tensors, state, Fit::complete);
        copy_values(trained.tensors, state);
        LoaderOptions loading = loader_options(config, data);
        loading.batch_size = options.batch_size;
        use_device(loading, data, options.placement);
        TestReport report =
            evaluate_alone(parts, data, loading, has_targets, options.after_batch);
        report.part = options.part;
        if (options.needs_targets && !std::isfinite(report.loss)) {
          throw DataError(fmt::format(
              "[eval] the {} loss of '{}' is not finite, expected a finite number; "
              "name a checkpoint of an earlier step",
              name_of(report.part), checkpoint));
        }
        return report;
      });
}

}  // namespace tandem

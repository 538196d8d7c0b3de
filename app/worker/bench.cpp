#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "app/bench_flags.h"
#include "app/worker/bench.h"
#include "app/worker/devices.h"
#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/run_directory.h"
#include "tandem/data/load_dataset.h"
#include "tandem/train/agreement/precision.h"
#include "tandem/train/assembly.h"
#include "tandem/train/device_limits.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int64_t kPrefetchedBatches = 32;

SamplerOptions whole_set(const Dataset& dataset) {
  SamplerOptions options;
  options.size = dataset.size;
  return options;
}

// Endless sequence of full batches. Skips the smaller batch at the end of an epoch.
class FullBatches {
 public:
  FullBatches(const Dataset& dataset, const LoaderOptions& options)
      : loader_(dataset, whole_set(dataset), options), batch_size_(options.batch_size) {
    if (dataset.size < batch_size_) {
      throw ConfigError(fmt::format(
          "[bench] the data set has {} samples, fewer than a batch of {}; lower "
          "--batch-size",
          dataset.size, batch_size_));
    }
  }

  Batch next() {
    Batch batch;
    while (epoch_ < 0 || !loader_.next(batch) || batch.count() < batch_size_) {
      loader_.seek(++epoch_);
    }
    return batch;
  }

 private:
  Loader loader_;
  int64_t batch_size_;
  int64_t epoch_ = -1;
};

struct StepTimes {
  // Times of the steps after the warm-up, in milliseconds.
  std::vector<double> ms;
  // Time from the start of each step until the optimizer begins; empty if the strategy
  // does not record the update.
  std::vector<double> ms_before_update;
  // Bytes of each bucket of gradients.
  std::vector<int64_t> bucket_bytes;
  // Time between the completion of a bucket and the start of the optimizer, in
  // milliseconds, by bucket and step. Communication during this time overlaps with
  // backward.
  std::vector<std::vector<double>> bucket_lead_ms;
  // Object "tensor_bytes" of the output.
  ordered_json tensor_bytes;
  // The executor that "auto" chose.
  ExecutorKind executor = ExecutorKind::automatic;
};

// Adds the times from the spans of a step.
void add_spans(StepTimes& times, const Trace& trace) {
  const auto spans = trace.compute_spans();
  const auto update = std::find_if(
      spans.begin(), spans.end(),
      [](const Trace::Span& span) { return span.name == "update"; });
  if (update == spans.end()) {
    return;
  }
  times.ms_before_update.push_back(static_cast<double>(update->start_ns) / 1e6);
  size_t bucket = 0;
  for (const auto& span : spans) {
    if (span.bytes == 0) {
      continue;
    }
    if (bucket == times.bucket_bytes.size()) {
      times.bucket_bytes.push_back(span.bytes);
      times.bucket_lead_ms.emplace_back();
    }
    times.bucket_lead_ms[bucket++].push_back(
        static_cast<double>(update->start_ns - span.start_ns) / 1e6);
  }
}

// Returns the sizes of the tensors of a rank, and runs forward and backward of `batch`
// to find the size of the values that are kept for backward.
ordered_json tensor_bytes(
    const Assembly& parts, const Batch& batch, const StepContext& context) {
  const Arena& parameters = parts.arenas->parameters();
  int64_t all = 0;
  int64_t trained = 0;
  int64_t largest_bucket = 0;
  int64_t optimizer = 0;
  for (const auto& range : parameters.layout().ranges()) {
    const auto bytes = static_cast<int64_t>(parameters.slice(range).nbytes());
    all += bytes;
    trained += parts.arenas->gradients().holds(range.segment) ? bytes : 0;
  }
  for (const auto& bucket : parameters.layout().buckets()) {
    largest_bucket = std::max(
        largest_bucket, static_cast<int64_t>(parameters.slice(bucket.range).nbytes()));
  }
  for (const Arena* state : parts.optimizer->state()) {
    for (const auto& range : state->layout().ranges()) {
      optimizer += static_cast<int64_t>(state->segment(range.segment).nbytes());
    }
  }
  parts.executor->zero_gradients();
  parts.executor->forward(0, batch, context);
  const int64_t activations = parts.executor->kept_bytes();
  NoSink no_sink;
  parts.executor->backward(0, {}, context, no_sink);
  return {
      {"parameters", all},
      {"trained", trained},
      {"optimizer", optimizer},
      {"activations", activations},
      {"largest_bucket", largest_bucket}};
}

StepTimes time_steps(
    const BenchStepOptions& options, Communicator& comm, const Placement& placement) {
  const auto data = load_dataset(DataRequest(options.config)).train;
  const Assembly parts = assemble(options.config, data, comm, nullptr, {}, placement);
  const at::Device device = parts.arenas->device();
  LoaderOptions loading = loader_options(options.config, data);
  use_device(loading, data, placement);
  loading.num_buffers = options.prefetched ? kPrefetchedBatches : 2;
  FullBatches batches(data, loading);
  std::vector<Batch> fetched;
  while (options.prefetched && fetched.size() < kPrefetchedBatches) {
    fetched.push_back(batches.next());
  }
  parts.strategy->start();
  StepContext context;
  context.lr = parts.optimizer->base_lr();
  StepTimes times;
  times.tensor_bytes =
      tensor_bytes(parts, options.prefetched ? fetched[0] : batches.next(), context);
  times.executor = parts.executor->kind();
  for (; context.step < options.warmup + options.steps; ++context.step) {
    const auto start = Clock::now();
    Trace trace;
    context.trace = &trace;
    const auto place = static_cast<size_t>(context.step % kPrefetchedBatches);
    const Batch batch = options.prefetched ? fetched[place] : batches.next();
    parts.strategy->train_step({batch}, context);
    wait_for(device);
    if (context.step >= options.warmup) {
      times.ms.push_back(milliseconds_since(start));
      add_spans(times, trace);
    }
  }
  return times;
}

ordered_json buckets_json(const StepTimes& times) {
  auto buckets = ordered_json::array();
  for (size_t i = 0; i < times.bucket_bytes.size(); ++i) {
    buckets.push_back(
        {{"bytes", times.bucket_bytes[i]},
         {"lead_ms", spread_of(times.bucket_lead_ms[i]).median}});
  }
  return buckets;
}

int bench_step(const Arguments& arguments) {
  auto options = parse_bench_step(arguments);
  at::set_num_threads(options.threads);
  const auto comm = make_single_communicator();
  RunConfig& config = options.config;
  const Placement placement = find_placement(config, 0);
  config.exec.precision = settle_precision(config, placement, *comm);
  const StepTimes times = within_device_memory(
      placement, smaller_batches("--batch-size", config.training.batch_size),
      [&] { return time_steps(options, *comm, placement); });
  const Spread spread = spread_of(times.ms);
  const std::string device = placement.device ? placement.device->str() : "cpu";
  const double rate =
      1000 * static_cast<double>(config.training.batch_size) / spread.median;
  if (!options.json) {
    fmt::print(
        "{}, batch {}, executor {}, {}, {}, {}, batches {}: {:.2f} ms per step "
        "(p10 {:.2f}, p90 {:.2f}), {:.0f} samples/s\n",
        config.model.model(), config.training.batch_size, name_of(times.executor),
        name_of(config.exec.precision), device, counted(options.threads, "thread"),
        options.prefetched ? "fetched beforehand" : "fetched in the step",
        spread.median, spread.p10, spread.p90, rate);
    return 0;
  }
  ordered_json json;
  add_spread(json, "ms_per_step", spread);
  if (!times.ms_before_update.empty()) {
    json["ms_before_update"] = spread_of(times.ms_before_update).median;
    json["buckets"] = buckets_json(times);
  }
  json["samples_per_second"] = rate;
  json["tensor_bytes"] = times.tensor_bytes;
  json["steps"] = options.steps;
  json["model"] = config.model.model();
  json["data"] = config.data.source;
  json["batch"] = config.training.batch_size;
  json["prefetched"] = options.prefetched;
  json["threads"] = options.threads;
  json["executor"] = name_of(times.executor);
  json["device"] = device;
  json["precision"] = name_of(config.exec.precision);
  json["optimizer"] = name_of(config.optimizer.kind);
  print_with_machine(json);
  return 0;
}

// Returns the samples per second of each epoch after the first.
std::vector<double> time_epochs(const BenchLoaderOptions& options) {
  const auto data = load_dataset(DataRequest(options.config)).train;
  Loader loader(data, whole_set(data), loader_options(options.config, data));
  std::vector<double> rates;
  Batch batch;
  for (int64_t epoch = 0; epoch <= options.epochs; ++epoch) {
    const auto start = Clock::now();
    loader.seek(epoch);
    while (loader.next(batch)) {
    }
    if (epoch > 0) {
      rates.push_back(
          1000 * static_cast<double>(data.size) / milliseconds_since(start));
    }
  }
  return rates;
}

int bench_loader(const Arguments& arguments) {
  const auto options = parse_bench_loader(arguments);
  at::set_num_threads(1);
  const Spread spread = spread_of(time_epochs(options));
  const RunConfig& config = options.config;
  if (!options.json) {
    fmt::print(
        "{}, batch {}, 1 thread: {:.0f} samples/s (p10 {:.0f}, p90 {:.0f})\n",
        config.data.source, config.training.batch_size, spread.median, spread.p10,
        spread.p90);
    return 0;
  }
  ordered_json json;
  add_spread(json, "samples_per_second", spread);
  json["epochs"] = options.epochs;
  json["data"] = config.data.source;
  json["batch"] = config.training.batch_size;
  json["threads"] = 1;
  print_with_machine(json);
  return 0;
}

}  // namespace

void wait_for(const c10::Device& device) {
  if (!device.is_cpu()) {
    c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
  }
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void add_spread(ordered_json& json, const char* key, const Spread& spread) {
  json[key] = spread.median;
  json["p10"] = spread.p10;
  json["p90"] = spread.p90;
}

void print_with_machine(ordered_json json) {
  const auto environment = ordered_json::parse(environment_json());
  for (const char* key : {"libtorch", "cpu", "instruction_sets"}) {
    json[key] = environment.at(key);
  }
  fmt::print("{}\n", json.dump());
}

int work_bench(const Arguments& arguments) {
  return choose_bench(
      arguments, {&bench_step, &bench_loader, &bench_optimizer, &bench_allreduce});
}

}  // namespace tandem::app

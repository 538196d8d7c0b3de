#include <cerrno>
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/parallel/strategies/shared_parameters.h"
#include "tandem/parallel/strategies/strategies.h"

namespace tandem {

namespace {

template <typename Value>
Value parse_choice(
    const std::string& flag, const std::string& text,
    const std::vector<std::pair<std::string, Value>>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    if (text == name) {
      return value;
    }
    names.push_back(name);
  }
  throw ConfigError(
      "[parallel] " + flag + " cannot be '" + text + "'" + did_you_mean(text, names) +
      "; choose one of " + join(names));
}

}  // namespace

TrainingState local_state(const ModelArenas& arenas, Optimizer& optimizer) {
  TrainingState state;
  state.model = arenas.state();
  for (const Arena* arena : optimizer.state()) {
    const auto& slots = arena->layout().slots();
    for (size_t i = 0; i < slots.size(); ++i) {
      state.optimizer.push_back({arena->name() + "/" + slots[i].name, arena->view(i)});
    }
  }
  return state;
}

const std::vector<StrategyEntry>& strategy_table() {
  static const std::vector<StrategyEntry> table = {
      {"sequential",
       "one rank. The reference for the others; costs no communication, and the time "
       "of one rank",
       &make_sequential, false, true},
      {"data_parallel",
       "replicas, gradients averaged in every step: for every model that fits one "
       "rank. Costs an all-reduce of all gradients a step, and waits for the slowest",
       &make_data_parallel, false, true},
      {kHogwild,
       "ranks of one host train on one set of parameters, without locks: for small "
       "models, where waiting for each other costs most. Results differ from run to "
       "run",
       &make_hogwild},
      {"parameter_server",
       "rank 0 updates, the others push gradients and pull parameters by RPC: for "
       "ranks "
       "of unequal speed (--server-updates asynchronous) or when only one can hold the "
       "optimizer's state. Costs a rank that computes no gradients, and the server's "
       "link carries everybody's traffic",
       &make_parameter_server},
      {"averaging",
       "ranks train alone, parameters averaged now and then: for slow links, or data "
       "that must stay where it is. Costs accuracy per epoch: each rank learns from "
       "its own samples only in between, the more the rarer --average-every",
       &make_averaging},
      {"pipeline",
       "the model's layers in --stages, each batch in --micro-batches, --replicas of "
       "it. For models too large for one rank; costs the time in which a stage waits "
       "for the first and last micro-batches",
       &make_pipeline, true},
      {"model_parallel",
       "pipeline under its old name: with one micro-batch a step one stage works at a "
       "time. For models too large for one rank where the batch cannot be divided; "
       "costs all speed-up",
       &make_pipeline, true},
  };
  return table;
}

namespace {

void check_fits(const StrategyOptions& options, const StrategyEntry& entry) {
  if (options.shard_optimizer && !entry.has_buckets) {
    throw ConfigError(
        "[parallel] strategy " + options.name +
        " cannot share out the optimizer; leave out --optimizer-state, or use "
        "--strategy data_parallel");
  }
  if (options.comm_hook != CommHook::none && !entry.has_buckets) {
    throw ConfigError(
        "[parallel] strategy " + options.name +
        " has no buckets of gradients to compress; leave out --comm-hook, or use "
        "--strategy data_parallel");
  }
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(
    const StrategyOptions& options, const StrategyParts& parts) {
  std::vector<std::string> names;
  for (const auto& entry : strategy_table()) {
    if (options.name == entry.name) {
      check_fits(options, entry);
      return entry.make(options, parts);
    }
    names.emplace_back(entry.name);
  }
  throw ConfigError(
      "[parallel] unknown strategy '" + options.name + "'" +
      did_you_mean(options.name, names) + "; there are " + join(names));
}

SyncMode parse_sync_mode(const std::string& name) {
  return parse_choice<SyncMode>(
      "--sync", name,
      {{"parameter", SyncMode::parameter},
       {"flat", SyncMode::flat},
       {"overlap", SyncMode::overlap}});
}

BufferSync parse_buffer_sync(const std::string& name) {
  return parse_choice<BufferSync>(
      "--buffers", name,
      {{"broadcast", BufferSync::broadcast},
       {"average", BufferSync::average},
       {"off", BufferSync::off},
       {"sync", BufferSync::sync}});
}

CommHook parse_comm_hook(const std::string& name) {
  return parse_choice<CommHook>(
      "--comm-hook", name,
      {{"none", CommHook::none}, {"fp16", CommHook::fp16}, {"bf16", CommHook::bf16}});
}

PipelineSchedule parse_pipeline_schedule(const std::string& name) {
  return parse_choice<PipelineSchedule>(
      "--pipeline-schedule", name,
      {{"gpipe", PipelineSchedule::gpipe},
       {"1f1b", PipelineSchedule::one_forward_one_backward}});
}

AverageEvery parse_average_every(const std::string& text) {
  if (text == "epoch") {
    return {0};
  }
  if (text == "end") {
    return {-1};
  }
  char* end = nullptr;
  errno = 0;
  const int64_t steps = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0 || steps < 1) {
    throw ConfigError(
        "[parallel] average_every is '" + text +
        "', expected a number of steps from 1, epoch or end; change --average-every");
  }
  return {steps};
}

}  // namespace tandem

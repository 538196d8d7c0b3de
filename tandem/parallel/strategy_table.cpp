#include "tandem/base/error.h"
#include "tandem/parallel/strategies.h"

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
      {"sequential", "one rank; the reference for the others", &make_sequential},
      {"data_parallel", "replicas, gradients averaged in every step",
       &make_data_parallel},
  };
  return table;
}

std::unique_ptr<Strategy> make_strategy(
    const StrategyOptions& options, const StrategyParts& parts) {
  std::vector<std::string> names;
  for (const auto& entry : strategy_table()) {
    if (options.name == entry.name) {
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
       {"off", BufferSync::off}});
}

}  // namespace tandem

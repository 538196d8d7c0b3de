#include "tandem/base/error.h"
#include "tandem/config/fields.h"
#include "tandem/parallel/strategies/strategies.h"

namespace tandem {

namespace {

struct StrategyFactory {
  StrategyKind kind;
  std::unique_ptr<Strategy> (*make)(const StrategyOptions&, const StrategyParts&);
};

#define TANDEM_FACTORY(name) {StrategyKind::name, &make_##name},
constexpr StrategyFactory kFactories[] = {TANDEM_STRATEGIES(TANDEM_FACTORY)};
#undef TANDEM_FACTORY

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

std::unique_ptr<Strategy> make_strategy(
    const StrategyOptions& options, const StrategyParts& parts) {
  check_options(options);
  for (const auto& factory : kFactories) {
    if (factory.kind == options.kind) {
      return factory.make(options, parts);
    }
  }
  throw InternalError("[parallel] a strategy without a factory");
}

}  // namespace tandem

#include "tandem/config/fields.h"
#include "tandem/config/options/setting.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

// The factory of a strategy, make_NAME(), which its source file defines.
using StrategyFactory = std::unique_ptr<Strategy>(
    const StrategyOptions& options, const StrategyParts& parts);

#define TANDEM_DECLARE(name) StrategyFactory make_##name;
TANDEM_STRATEGIES(TANDEM_DECLARE)
#undef TANDEM_DECLARE

namespace {

struct StrategyRow {
  StrategyKind kind;
  StrategyFactory* make;
};

#define TANDEM_ROW(name) {StrategyKind::name, &make_##name},
constexpr StrategyRow kStrategies[] = {TANDEM_STRATEGIES(TANDEM_ROW)};
#undef TANDEM_ROW

}  // namespace

TrainingState local_state(const ModelArenas& arenas, Optimizer& optimizer) {
  TrainingState state;
  state.model = arenas.state();
  for (const Arena* arena : optimizer.state()) {
    const auto& slots = arena->layout().slots();
    for (size_t i = 0; i < slots.size(); ++i) {
      if (arena->holds(slots[i].segment)) {
        state.optimizer.push_back(
            {arena->name() + "/" + slots[i].name, arena->view(i)});
      }
    }
  }
  return state;
}

StepSums Strategy::evaluate_batch(const Batch& batch, const StepContext& context) {
  return parts_.executor.forward(0, batch, context).sums;
}

std::unique_ptr<Strategy> make_strategy(
    const StrategyOptions& options, const StrategyParts& parts) {
  check_options(options);
  return row_of_kind(kStrategies, options.kind).make(options, parts);
}

}  // namespace tandem

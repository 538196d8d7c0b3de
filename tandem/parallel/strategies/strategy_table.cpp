#include "tandem/config/fields.h"
#include "tandem/config/options/setting.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

TrainingState local_state(const ModelArenas& arenas, Optimizer& optimizer) {
  TrainingState state;
  state.model = arenas.state();
  for (const Arena* arena : optimizer.state()) {
    const auto views = arena->named_views();
    state.optimizer.insert(state.optimizer.end(), views.begin(), views.end());
  }
  return state;
}

StepSums Strategy::evaluate_batch(const Batch* batch, const StepContext& context) {
  return batch == nullptr ? StepSums()
                          : parts_.executor.forward(0, *batch, context).sums;
}

std::unique_ptr<Strategy> make_strategy(
    const StrategyOptions& options, const StrategyParts& parts) {
  check_options(options);
  return with_kind(options.kind, [&](auto kind) {
    std::unique_ptr<Strategy> make_strategy(
        decltype(kind), const StrategyOptions&, const StrategyParts&);
    return make_strategy(kind, options, parts);
  });
}

}  // namespace tandem

#include "tandem/optim/optimizer.h"

#include <utility>

#include "tandem/config/fields.h"
#include "tandem/optim/ema.h"
#include "tandem/optim/fused_optimizer.h"

namespace tandem {

std::unique_ptr<Optimizer> make_optimizer(
    const OptimizerOptions& options, Arena& parameters, Arena& gradients,
    const std::vector<ParameterGroup>& groups) {
  check_options(options);
  auto optimizer = std::make_unique<FusedOptimizer>(
      with_defaults(options), parameters, gradients, groups);
  if (options.ema_decay > 0) {
    return make_ema_optimizer(std::move(optimizer), parameters, options.ema_decay);
  }
  return optimizer;
}

}  // namespace tandem

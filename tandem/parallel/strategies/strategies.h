#pragma once

#include <memory>

#include "tandem/parallel/strategy.h"

namespace tandem {

// make_data_parallel() and so on: each in the file of its name.
#define TANDEM_DECLARE(name)             \
  std::unique_ptr<Strategy> make_##name( \
      const StrategyOptions& options, const StrategyParts& parts);
TANDEM_STRATEGIES(TANDEM_DECLARE)
#undef TANDEM_DECLARE

}  // namespace tandem

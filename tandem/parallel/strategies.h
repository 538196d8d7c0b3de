#pragma once

#include <memory>

#include "tandem/parallel/strategy.h"

namespace tandem {

/// The factories behind strategy_table().
std::unique_ptr<Strategy> make_sequential(const StrategyOptions&, const StrategyParts&);
std::unique_ptr<Strategy> make_data_parallel(
    const StrategyOptions&, const StrategyParts&);

}  // namespace tandem

#pragma once

#include <memory>

#include "tandem/parallel/strategy.h"

namespace tandem {

/// The factories behind strategy_table().
std::unique_ptr<Strategy> make_sequential(const StrategyOptions&, const StrategyParts&);
std::unique_ptr<Strategy> make_data_parallel(
    const StrategyOptions&, const StrategyParts&);
std::unique_ptr<Strategy> make_hogwild(const StrategyOptions&, const StrategyParts&);
std::unique_ptr<Strategy> make_parameter_server(
    const StrategyOptions&, const StrategyParts&);
std::unique_ptr<Strategy> make_averaging(const StrategyOptions&, const StrategyParts&);
std::unique_ptr<Strategy> make_pipeline(const StrategyOptions&, const StrategyParts&);

}  // namespace tandem

#pragma once

#include <memory>

#include "tandem/optim/optimizer.h"

namespace tandem {

/// Name of the state arena with the averages. A checkpoint has "ema/<parameter>".
constexpr const char* kEma = "ema";

/// Returns an optimizer that wraps `optimizer` and keeps an exponential moving average
/// (EMA) of the parameters. Its state() includes the arena of the averages, which has
/// the layout of `parameters`.
///
/// The first update copies the parameters. After each later update, an average is
/// decay * average + (1 - decay) * parameter. A skipped step counts as an update, as in
/// a PyTorch loop, which updates the average after each GradScaler.step(). Before the
/// first update, the averages of trainable parameters are 0; those of frozen parameters
/// are the parameters.
///
/// `parameters` must outlive the result. `decay` is in 0 to 1. Results equal those of
/// AveragedModel with get_ema_multi_avg_fn(decay), except for rounding. Source:
/// torch/optim/swa_utils.py.
[[nodiscard]] std::unique_ptr<Optimizer> make_ema_optimizer(
    std::unique_ptr<Optimizer> optimizer, Arena& parameters, double decay);

}  // namespace tandem

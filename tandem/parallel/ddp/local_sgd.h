#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/config/options/strategy_options.h"
#include "tandem/core/arena.h"
#include "tandem/core/module_state.h"
#include "tandem/parallel/update/outer_step.h"

namespace tandem {

/// Options of LocalSgd.
struct LocalSgdOptions {
  // Number of optimizer steps between two averages.
  int64_t average_every = 4;
  // True if averages include floating-point and integer buffers, such as batch norm's
  // running statistics. The means of integers are rounded towards zero.
  bool average_buffers = true;
  // An optimizer for each average, with its learning rate and momentum (DiLoCo,
  // parallel/update/outer_step.h).
  OuterOptimizer outer_optimizer = OuterOptimizer::none;
  double outer_lr = StrategyOptions().outer_lr;
  double outer_momentum = StrategyOptions().outer_momentum;
};

/// Local SGD in a custom loop: each rank makes steps with its own gradients, and every
/// few steps the ranks average their parameters. The counterpart of PyTorch's
/// PeriodicModelAverager.
///
///   tandem::LocalSgd averaging(*net, *run.comm, {8});
///   torch::optim::SGD optimizer(net->parameters(), 0.01);
///   ...
///     loss.backward();
///     optimizer.step();
///     averaging.step();
///   ...
///   averaging.average();  // at the end of the run
///
/// The constructor copies rank 0's parameters and buffers to all ranks and moves their
/// memory into arenas, so make the LocalSgd before the optimizer. The module and the
/// communicator must outlive it. Frozen parameters are not averaged. The averages have
/// the bits of `tandem train --strategy averaging` with the same settings. Not
/// thread-safe.
///
/// Sources: Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019; for
/// the outer optimizer, Douillard et al., "DiLoCo", 2023.
class LocalSgd {
 public:
  /// Collective. Throws ConfigError if the ranks' models or options differ, or if
  /// `average_every` is below 1.
  template <typename Module>
  LocalSgd(Module& module, Communicator& comm, const LocalSgdOptions& options = {})
      : LocalSgd(
            named_tensors(module.named_parameters()),
            named_tensors(module.named_buffers()), comm, options) {}
  LocalSgd(
      const std::vector<NamedTensor>& parameters,
      const std::vector<NamedTensor>& buffers, Communicator& comm,
      const LocalSgdOptions& options);

  /// Counts an optimizer step, and averages after every `average_every` steps.
  /// Collective in these steps, so all ranks make the same number of steps.
  void step();

  /// Averages parameters and buffers now, unless they have been averaged since the last
  /// step. An outer optimizer then makes its step. Collective.
  void average();

  /// Returns the state of the outer optimizer, for Checkpoint::add_state(); empty
  /// without an outer optimizer. Save at an average, because until then the parameters
  /// of ranks differ.
  std::vector<NamedTensor> state() const;

  /// Returns the arenas of parameters, gradients and buffers.
  ModelArenas& arenas() {
    return arenas_;
  }

 private:
  Communicator& comm_;
  const LocalSgdOptions options_;
  ModelArenas arenas_;
  std::optional<OuterStep> outer_;
  int64_t steps_since_average_ = 0;
};

}  // namespace tandem

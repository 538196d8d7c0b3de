#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/core/placement.h"
#include "tandem/data/dataset.h"
#include "tandem/data/loader.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/model/model.h"
#include "tandem/optim/lr_schedule.h"
#include "tandem/optim/optimizer.h"
#include "tandem/parallel/statistics_group.h"
#include "tandem/parallel/strategy.h"

namespace tandem {

/// The parts of one rank's run. A member may refer to the members above it.
struct Assembly {
  // Null if batch norm uses only its rank's samples.
  std::shared_ptr<StatisticsGroup> statistics;
  // This rank's stage if the strategy has stages, else the whole model.
  std::unique_ptr<Model> model;
  // Names of the whole model's parameters, in order of registration.
  std::vector<std::string> parameter_names;
  std::unique_ptr<ModelArenas> arenas;
  // Empty arenas for the optimizer of a rank whose parameters are updated elsewhere;
  // else null.
  std::unique_ptr<ModelArenas> no_arenas;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<StageExecutor> executor;
  // Why "auto" did not choose a faster executor; "" if it did.
  std::string executor_passed_over;
  std::unique_ptr<Strategy> strategy;
  // `automatic` if the strategy has no such choice.
  OptimizerState optimizer_state = OptimizerState::automatic;
};

/// Makes the parts of a rank's run from a config. Collective.
///
/// `model`: the program's own model (config.model.kind is then "custom"), or null for
/// the config's. Both start from the weights of config.model.init, if it is set.
/// `loss`: the program's own loss, or empty for the config's. `placement`: the rank's
/// device.
///
/// Throws ConfigError for parts that do not fit together. Throws for config.model.init
/// as load_weights() does.
[[nodiscard]] Assembly assemble(
    const RunConfig& config, const Dataset& train, Communicator& comm,
    std::unique_ptr<Model> model = nullptr, LossFunction loss = {},
    const Placement& placement = {});

/// Returns the loss of a config's run.
[[nodiscard]] Loss loss_of(const RunConfig& config);

/// Returns the loader options that turn images into inputs of the config's model.
[[nodiscard]] LoaderOptions loader_options(const RunConfig& config);

/// Returns the facts about a model that its checkpoint stores.
[[nodiscard]] std::map<std::string, std::string> describe_model(
    const RunConfig& config, const Dataset& dataset);

/// Returns a config that agrees with a checkpoint's facts, for `eval`. Throws DataError
/// if a fact is missing.
[[nodiscard]] RunConfig config_from(
    const std::map<std::string, std::string>& description);

}  // namespace tandem

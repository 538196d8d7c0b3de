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

/// The parts of one rank's run, put together as a config says. Members are in
/// order of use: each may refer to those above it.
struct Assembly {
  // Null where batch norm keeps to its own samples.
  std::shared_ptr<StatisticsGroup> statistics;
  // This rank's stage where the strategy has stages.
  std::unique_ptr<Model> model;
  // Of the whole model, in order of registration.
  std::vector<std::string> parameter_names;
  std::unique_ptr<ModelArenas> arenas;
  // What the optimizer updates where that is not the model: nothing.
  std::unique_ptr<ModelArenas> no_arenas;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<StageExecutor> executor;
  // Why "auto" did not take a faster one; empty when it did.
  std::string executor_passed_over;
  std::unique_ptr<Strategy> strategy;
  // `automatic` where the strategy has no such choice.
  OptimizerState optimizer_state = OptimizerState::automatic;
};

/// `model`: the program's own (config.model.kind is then "custom"), or null to make the
/// one that the config names. Either starts from the weights of config.init. `loss`:
/// the program's own, or empty for the config's. `placement`: where the rank computes.
///
/// Throws ConfigError for parts that do not fit; for
/// config.model.init as load_weights().
[[nodiscard]] Assembly assemble(
    const RunConfig& config, const Dataset& train, Communicator& comm,
    std::unique_ptr<Model> model = nullptr, LossFunction loss = {},
    const Placement& placement = {});

/// What a config's run minimises.
[[nodiscard]] Loss loss_of(const RunConfig& config);

/// How images become inputs of the config's model.
[[nodiscard]] LoaderOptions loader_options(const RunConfig& config);

/// What a checkpoint says about its model, and a config that agrees with it (for
/// `eval`, which has nothing else).
[[nodiscard]] std::map<std::string, std::string> describe_model(
    const RunConfig& config, const Dataset& dataset);
[[nodiscard]] RunConfig config_from(
    const std::map<std::string, std::string>& description);

}  // namespace tandem

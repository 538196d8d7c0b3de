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

/// The parts of one rank's run. A member may refer to members that are declared before
/// it.
struct Assembly {
  // Group that exchanges batch norm's statistics; null if batch norm uses only this
  // rank's samples.
  std::shared_ptr<StatisticsGroup> statistics;
  // This rank's stage if the strategy has stages, otherwise the whole model.
  std::unique_ptr<Model> model;
  // Name of a batch norm of the whole model that needs two samples or more in each
  // batch; "" if there is none, or if it uses the samples of all ranks.
  std::string needs_two_samples;
  // Number of classes. If targets are classes of positions, such as tokens, and the
  // model has more outputs, their number; otherwise Dataset::num_classes.
  int64_t num_classes = 0;
  // Names of the whole model's parameters, in order of registration.
  std::vector<std::string> parameter_names;
  std::unique_ptr<ModelArenas> arenas;
  // Empty arenas for the optimizer if another rank updates this rank's parameters
  // (updates_elsewhere()); otherwise null.
  std::unique_ptr<ModelArenas> no_arenas;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<StageExecutor> executor;
  // Reason why the executor "auto" did not choose a faster executor; "" if it chose the
  // fastest executor.
  std::string executor_passed_over;
  std::unique_ptr<Strategy> strategy;
  // Loss that the strategy minimizes.
  Loss loss;
  // Values that are sharded; `automatic` if the strategy does not support the setting.
  Sharding shard = Sharding::automatic;
};

/// Makes the parts of a rank's run from a config. Collective.
///
/// `model` is a custom model of the program, with config.model.kind "custom"; null
/// selects the config's model. Loads the weights of config.model.init, if it is set,
/// into either model, unless the run resumes from a checkpoint. `loss` is a custom loss
/// of the program; an empty function selects the config's loss. `placement` is the
/// rank's device.
///
/// Throws ConfigError if the parts do not fit together. Throws the errors of
/// load_weights() if the weights of config.model.init cannot be loaded.
[[nodiscard]] Assembly assemble(
    const RunConfig& config, const Dataset& train, Communicator& comm,
    std::unique_ptr<Model> model = nullptr, LossFunction loss = {},
    const Placement& placement = {});

/// Returns the options of a config's model for the samples of a data set.
[[nodiscard]] ModelOptions model_options(const RunConfig& config, const Dataset& data);

/// Returns the model that a config selects, a built-in model or a network file, with
/// its initial values. Throws the errors of make_model() and load_model_file(), and
/// ConfigError if a built-in model would get indices.
[[nodiscard]] std::unique_ptr<Model> make_model(
    const RunConfig& config, const ModelOptions& options);

/// Returns the loss that a config selects. Replaces `automatic` by this loss:
/// - mse if targets are numbers
/// - for a network file, nll if its graph ends in a log-softmax, otherwise
///   cross_entropy
/// - for other models, the default loss of the model
///
/// Throws ConfigError if the config selects a loss of numbers for targets that are
/// classes, or a loss of classes for targets that are numbers. Also throws ConfigError
/// for a loss of numbers if the model ends in a log-softmax.
[[nodiscard]] Loss loss_of(
    const RunConfig& config, const Graph* graph = nullptr,
    bool targets_are_numbers = false);

/// Returns the loader options with which samples of a data set become inputs of the
/// config's model.
[[nodiscard]] LoaderOptions loader_options(
    const RunConfig& config, const Dataset& data);

}  // namespace tandem

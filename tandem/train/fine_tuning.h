#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/config/options/optimizer_options.h"
#include "tandem/model/model.h"
#include "tandem/optim/optimizer.h"

namespace tandem {

/// Parameter groups of a model, and the group of each parameter by its name.
struct GroupedParameters {
  std::vector<ParameterGroup> groups;
  std::map<std::string, int64_t> group_of;
};

/// Freezes the parameters whose names match `patterns` (ModelSettings::freeze), which
/// means that it sets requires_grad to false.
///
/// Throws ConfigError if a pattern matches no parameter, or if no parameter of the
/// model remains trainable.
void freeze_parameters(const std::string& patterns, const Model& model);

/// Returns the parameter groups for the factors and decay_bias_and_norm of `options`:
/// one group for each pair of factors. Parameters with fewer than two dimensions count
/// as biases and parameters of norms.
///
/// Throws ConfigError if a pattern matches no parameter.
[[nodiscard]] GroupedParameters group_parameters(
    const OptimizerOptions& options, const Model& model);

/// Returns the index of the first stage that has trainable parameters, in a pipeline.
/// `stage` is this rank's stage. Collective.
[[nodiscard]] int64_t find_first_trained_stage(const Model& stage, Communicator& comm);

}  // namespace tandem

#pragma once

#include "tandem/comm/communicator.h"
#include "tandem/config/run_config.h"
#include "tandem/model/loss.h"
#include "tandem/model/model.h"

namespace tandem {

/// Checks whether the graph of a whole model fits the settings, the loss and the ranks
/// of a run. Does nothing if the model has no graph. Not collective.
///
/// Rank 0 warns if a parameter gets no gradient, and if the model ends in a function
/// that the loss repeats, such as softmax. Throws ConfigError if no parameter gets a
/// gradient, if the file of the model does not allow the batch size, or if several
/// ranks train a model that changes a parameter in its forward pass.
void check_model(
    const RunConfig& config, const Model& model, const Loss& loss,
    const Communicator& comm);

}  // namespace tandem

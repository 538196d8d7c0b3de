#pragma once

#include <cstdint>
#include <string>

#include "tandem/graph/cuts.h"
#include "tandem/model/model.h"

namespace tandem {

/// Removes all nodes from `model` except those of stage `stage` of `stages`
/// (split_graph()). With one stage and no cut, changes nothing and accepts any model.
///
/// Returns all stages as text: "conv1, 320 parameters (1280 bytes) | conv2 fc1, ...".
/// Throws ConfigError for a model without graph(), and the errors of split_graph().
std::string keep_stage(
    Model& model, int64_t stages, int64_t stage, const Cut& cut = {});

}  // namespace tandem

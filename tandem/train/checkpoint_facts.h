#pragma once

#include <map>
#include <string>

#include "tandem/config/run_config.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// Facts about a model and its data that a checkpoint stores, as names and texts.
using CheckpointFacts = std::map<std::string, std::string>;

/// Key of the SHA-256 of the network file in CheckpointFacts.
constexpr const char* kModelHash = "model_sha256";

/// Returns the facts about a run: its model and loss, the settings of its data, the
/// shape and type of its samples, their normalization, and the names of classes. The
/// mean and std of the config must be numbers.
[[nodiscard]] CheckpointFacts facts_of(const RunConfig& config, const Dataset& data);

/// Returns a config for the evaluation of a checkpoint. Throws DataError if a fact that
/// all checkpoints have is missing.
[[nodiscard]] RunConfig config_from(const CheckpointFacts& facts);

/// Returns the data set of a checkpoint without samples: shapes, types, and the number
/// and names of classes. If the checkpoint has no names, the names are the numbers of
/// the classes, from 0. Throws DataError if a fact is damaged, or if a fact that all
/// checkpoints have is missing.
[[nodiscard]] Dataset format_from(const CheckpointFacts& facts);

}  // namespace tandem

#pragma once

#include <map>
#include <memory>
#include <string>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/config/run_config.h"
#include "tandem/data/dataset.h"
#include "tandem/model/model.h"

namespace tandem {

/// Facts about a model and its data that a checkpoint stores, as names and texts.
using CheckpointFacts = std::map<std::string, std::string>;

/// Key of the description of the data (to_text() in data/data_parts.h) in
/// CheckpointFacts.
constexpr const char* kDataParts = "data_parts";

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

/// Throws DataError if `path` is a directory without a checkpoint.
void check_is_checkpoint(const std::string& path);

/// Returns a config for the use of a checkpoint, with the path of its network file.
/// `network` is the path of the network file; "" selects the copy in the run's
/// directory (checkpoint/network_file.h). If that copy is TorchScript, which runs code,
/// `trusts_scripts` must be true.
///
/// Throws the errors of config_from() and network_file_of(). Throws ConfigError if the
/// checkpoint's model is built in and `network` is not "", or if the checkpoint has a
/// custom model and `network` is "".
[[nodiscard]] RunConfig config_of_checkpoint(
    const std::string& checkpoint, const CheckpointFacts& facts,
    const std::string& network, bool trusts_scripts = false);

/// A model that was loaded from a checkpoint.
struct CheckpointModel {
  // Settings that the checkpoint stores: model, loss, data, mean and std.
  RunConfig config;
  // The data of the training, without samples.
  Dataset format;
  // The model with the checkpoint's parameters and buffers.
  std::unique_ptr<Model> model;
};

/// Loads the model of a checkpoint on the CPU: a built-in model, a network file, or
/// `own`, the custom model of the program.
///
/// `checkpoint` is a path as for model_file(); `network` and `trusts_scripts` as for
/// config_of_checkpoint().
/// The parameters have the dtype of the checkpoint: float32, or float64 after training
/// with --precision fp64. The parameters of `own` and of a TorchScript module keep
/// their dtype.
///
/// Throws DataError if the path is not a checkpoint or a file is damaged or missing.
/// Throws ConfigError if the checkpoint belongs to another model or has no weights of
/// the kind `weights`. If `own` is null, also throws the errors of
/// config_of_checkpoint().
[[nodiscard]] CheckpointModel load_checkpoint_model(
    const std::string& checkpoint, const std::string& network = "",
    CheckpointWeights weights = CheckpointWeights::own,
    std::unique_ptr<Model> own = nullptr, bool trusts_scripts = false);

/// Like load_checkpoint_model(), but graph() of the model is not null: a TorchScript
/// module is recorded as a graph (Model::record_graph()). Throws ConfigError with the
/// reason if that fails.
[[nodiscard]] CheckpointModel load_checkpoint_graph(
    const std::string& checkpoint, const std::string& network = "",
    CheckpointWeights weights = CheckpointWeights::own, bool trusts_scripts = false);

}  // namespace tandem

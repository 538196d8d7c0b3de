#include "tandem/train/checkpoint_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/network_file.h"
#include "tandem/formats/tensor_list.h"
#include "tandem/model/script_model.h"
#include "tandem/train/assembly.h"

namespace tandem {

namespace {

// Returns whether training converted all parameters and buffers to its precision. The
// program's own module and TorchScript modules keep their types.
bool is_converted(const RunConfig& config) {
  const ModelKind kind = config.model.kind;
  return is_built_in(kind) ||
         (kind == ModelKind::file && !is_script_file(network_file(config)));
}

bool is_float64(const SafetensorsFile& file) {
  return std::any_of(
      file.tensors.begin(), file.tensors.end(), [](const NamedTensor& entry) {
        return entry.tensor.scalar_type() == at::kDouble;
      });
}

}  // namespace

void check_is_checkpoint(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(model_file(path), ignored)) {
    throw DataError(
        "[checkpoint] '" + path +
        "' has no model.safetensors; name a directory such as RUN/checkpoints/step-N");
  }
}

RunConfig config_of_checkpoint(
    const std::string& checkpoint, const CheckpointFacts& facts,
    const std::string& network) {
  RunConfig config = config_from(facts);
  ModelSettings& model = config.model;
  if (is_built_in(model.kind) && !network.empty()) {
    throw ConfigError(fmt::format(
        "[model] --model is '{}', but the model of '{}' is {}; leave out --model",
        network, checkpoint, name_of(model.kind)));
  }
  if (model.kind == ModelKind::custom && network.empty()) {
    throw ConfigError(
        "[model] the model of '" + checkpoint +
        "' is a module of its program, which no file contains; pass the module in C++, "
        "name a network file with --model NET.pt2, or write only the weights with "
        "tandem export --out NET.safetensors");
  }
  if (model.kind == ModelKind::file || !network.empty()) {
    const auto hash = facts.find(kModelHash);
    model.file = network_file_of(
        {checkpoint, model.file, hash == facts.end() ? "" : hash->second}, network);
    model.kind = ModelKind::file;
  }
  return config;
}

CheckpointModel load_checkpoint_model(
    const std::string& checkpoint, const std::string& network,
    CheckpointWeights weights, std::unique_ptr<Model> own) {
  check_is_checkpoint(checkpoint);
  const std::string path = model_file(checkpoint);
  const auto file = read_model(path, weights);
  CheckpointModel loaded;
  loaded.config = own ? config_from(file.metadata)
                      : config_of_checkpoint(path, file.metadata, network);
  loaded.config.exec.precision = is_float64(file) && is_converted(loaded.config)
                                     ? Precision::fp64
                                     : Precision::fp32;
  loaded.format = format_from(file.metadata);
  loaded.model =
      own ? std::move(own)
          : make_model(loaded.config, model_options(loaded.config, loaded.format));
  const auto state = loaded.model->state();
  check_fits("checkpoint", path, file.tensors, state, Fit::exact);
  copy_values(file.tensors, state);
  return loaded;
}

CheckpointModel load_checkpoint_graph(
    const std::string& checkpoint, const std::string& network,
    CheckpointWeights weights) {
  auto loaded = load_checkpoint_model(checkpoint, network, weights);
  const std::string reason = loaded.model->record_graph(
      loaded.format.inputs.shape, loaded.format.has_indices() ? at::kLong : at::kFloat);
  if (!reason.empty()) {
    throw ConfigError(
        "[model] the model of '" + checkpoint + "' has no graph: " + reason +
        "; write only its weights with tandem export --out NET.safetensors");
  }
  return loaded;
}

}  // namespace tandem

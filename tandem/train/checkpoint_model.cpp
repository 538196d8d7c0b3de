#include "tandem/train/checkpoint_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/checkpoint_files.h"
#include "tandem/checkpoint/network_file.h"
#include "tandem/formats/tensor_list.h"
#include "tandem/train/assembly.h"

namespace tandem {

namespace {

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
  const auto file = weights == CheckpointWeights::own
                        ? parse_model_file(read_file(path), path)
                        : read_model(path, weights);
  CheckpointModel loaded;
  loaded.config = own ? config_from(file.metadata)
                      : config_of_checkpoint(path, file.metadata, network);
  if (!own && loaded.config.model.kind == ModelKind::custom) {
    throw ConfigError(
        "[model] the model of '" + path +
        "' is a module of its program, which no file contains; pass the module to "
        "load_model(), name a network file with --model NET.pt2, or write only the "
        "weights with tandem export --out NET.safetensors");
  }
  loaded.config.exec.precision = is_float64(file) ? Precision::fp64 : Precision::fp32;
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

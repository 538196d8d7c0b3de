#include "tandem/train/checkpoint_model.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"
#include "tandem/base/text.h"
#include "tandem/checkpoint/checkpoint.h"
#include "tandem/checkpoint/network_file.h"
#include "tandem/config/fields.h"
#include "tandem/formats/tensor_list.h"
#include "tandem/model/script_model.h"
#include "tandem/train/assembly.h"

namespace tandem {

namespace {

std::string sizes_text(const std::vector<int64_t>& shape) {
  return fmt::format("{}", fmt::join(shape, ","));
}

std::string find(const CheckpointFacts& facts, const std::string& key) {
  const auto found = facts.find(key);
  if (found == facts.end()) {
    throw DataError(
        "[checkpoint] the file has no " + key +
        "; only tandem's own checkpoints can be evaluated");
  }
  return found->second;
}

std::string find_or(
    const CheckpointFacts& facts, const std::string& key, const std::string& other) {
  const auto found = facts.find(key);
  return found == facts.end() ? other : found->second;
}

std::vector<int64_t> sizes_in(const std::string& text, const std::string& key) {
  if (const auto sizes = parse_sizes(text, ',')) {
    return *sizes;
  }
  throw DataError(fmt::format(
      "[checkpoint] {} is '{}', expected sizes of 1 or more; use a checkpoint of "
      "`tandem train`",
      key, text));
}

ElementType type_in(const std::string& text, const std::string& key) {
  if (const auto type = find_choice<ElementType>(text)) {
    return *type;
  }
  throw DataError(fmt::format(
      "[checkpoint] {} is '{}', expected uint8, float32 or int64; update tandem", key,
      text));
}

// Number that becomes 1 before inputs are normalized.
constexpr const char* kInputUnit = "input_unit";

// Setting `columns`. The key "columns" contains Dataset::columns.
constexpr const char* kColumnChoice = "column_choice";

// Throws DataError if an older version divided numbers of uint8 by 255.
void check_unit(const CheckpointFacts& facts, const Dataset& format) {
  if (format.has_byte_numbers() && facts.count(kInputUnit) == 0) {
    throw DataError(
        "[checkpoint] the file has no input_unit: an older version of tandem wrote it, "
        "which divided inputs of uint8 by 255; train again, or use that version");
  }
}

// Checkpoints of older versions have three sizes of images instead of a shape.
std::string input_shape_in(const CheckpointFacts& facts) {
  return facts.count("input_shape") > 0
             ? facts.at("input_shape")
             : find(facts, "channels") + "," + find(facts, "height") + "," +
                   find(facts, "width");
}

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

CheckpointFacts facts_of(const RunConfig& config, const Dataset& data) {
  CheckpointFacts facts = {
      {"model", config.model.model()},
      {"loss", name_of(config.model.loss)},
      {"ignore_index", std::to_string(config.model.ignore_index)},
      {"data", config.data.source},
      {"mean", config.data.mean.text()},
      {"std", config.data.std.text()},
      {"target_mean", config.data.target_mean.text()},
      {"target_std", config.data.target_std.text()},
      {"input_type", name_of(data.inputs.type)},
      {kInputUnit, data.has_images() ? "255" : "1"},
      {"input_shape", sizes_text(data.inputs.shape)},
      {"target_type", name_of(data.targets.type)},
      {"target_shape", sizes_text(data.targets.shape)},
      {"tokens", data.tokens ? "true" : "false"},
      {"num_classes", std::to_string(data.num_classes)},
      {"class_names", join(data.class_names, "\n")},
      {"columns", data.columns},
      {"target", config.data.target},
      {kColumnChoice, config.data.columns},
      {"shape", config.data.shape},
      {"image_size", config.data.image_size},
      {"block_size", std::to_string(config.data.block_size)},
      {"test_fraction", fmt::format("{}", config.data.test_fraction)},
      {"validation", fmt::format("{}", config.data.validation)},
      {"limit", std::to_string(config.data.limit)},
      {"seed", std::to_string(config.training.seed)},
  };
  if (config.model.kind == ModelKind::file) {
    facts[kModelHash] = sha256_of_file(network_file(config));
  }
  return facts;
}

RunConfig config_from(const CheckpointFacts& facts) {
  RunConfig config;
  for (const char* key : {"model", "loss", "data", "mean", "std"}) {
    set_field(config, find_field(key, "checkpoint"), find(facts, key), "checkpoint");
  }
  // A checkpoint of an older version lacks some of these.
  for (const char* key :
       {"ignore_index", "target", "target_mean", "target_std", "shape", "image_size",
        "block_size", "test_fraction", "validation", "limit", "seed"}) {
    if (facts.count(key) > 0) {
      set_field(config, find_field(key, "checkpoint"), facts.at(key), "checkpoint");
    }
  }
  set_field(
      config, find_field("columns", "checkpoint"), find_or(facts, kColumnChoice, ""),
      "checkpoint");
  return config;
}

Dataset format_from(const CheckpointFacts& facts) {
  Dataset format;
  format.inputs.shape = sizes_in(input_shape_in(facts), "input_shape");
  format.inputs.type = type_in(find_or(facts, "input_type", "uint8"), "input_type");
  format.targets.shape = sizes_in(find_or(facts, "target_shape", ""), "target_shape");
  format.targets.type = type_in(find_or(facts, "target_type", "uint8"), "target_type");
  format.columns = find_or(facts, "columns", "");
  format.tokens = find_or(facts, "tokens", "false") == "true";
  check_unit(facts, format);
  format.num_classes = sizes_in(find(facts, "num_classes"), "num_classes").at(0);
  format.class_names = split(find_or(facts, "class_names", ""), '\n');
  if (static_cast<int64_t>(format.class_names.size()) != format.num_classes) {
    format.class_names.clear();
    for (int64_t i = 0; i < format.num_classes; ++i) {
      format.class_names.push_back(std::to_string(i));
    }
  }
  return format;
}

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
    const std::string& network, bool trusts_scripts) {
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
        {checkpoint, model.file, hash == facts.end() ? "" : hash->second}, network,
        trusts_scripts);
    model.kind = ModelKind::file;
  }
  return config;
}

CheckpointModel load_checkpoint_model(
    const std::string& checkpoint, const std::string& network,
    CheckpointWeights weights, std::unique_ptr<Model> own, bool trusts_scripts) {
  check_is_checkpoint(checkpoint);
  std::string path;
  const auto file = read_model(checkpoint, weights, &path);
  CheckpointModel loaded;
  loaded.config =
      own ? config_from(file.metadata)
          : config_of_checkpoint(path, file.metadata, network, trusts_scripts);
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
    CheckpointWeights weights, bool trusts_scripts) {
  auto loaded =
      load_checkpoint_model(checkpoint, network, weights, nullptr, trusts_scripts);
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

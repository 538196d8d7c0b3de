#include "tandem/train/onnx_export.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/data/csv.h"
#include "tandem/graph/normalized_input.h"
#include "tandem/graph/onnx.h"
#include "tandem/model/graph_model.h"

namespace tandem {

namespace {

// Returns the names of a table's inputs. A column of categories has an input for each
// category, "column=category".
std::vector<std::string> input_columns(const CheckpointModel& loaded) {
  const auto targets = split(loaded.config.data.target, ',');
  std::vector<std::string> names;
  for (const auto& column : columns_from_text(loaded.format.columns, "columns")) {
    if (std::find(targets.begin(), targets.end(), column.name) != targets.end()) {
      continue;
    }
    if (column.categories.empty()) {
      names.push_back(column.name);
    }
    for (const auto& category : column.categories) {
      names.push_back(column.name + "=" + category);
    }
  }
  return names;
}

InputNormalization normalization_of(const CheckpointModel& loaded) {
  InputNormalization normalization;
  normalization.unit = loaded.format.has_images() ? 255 : 1;
  normalization.mean = loaded.config.data.mean.values();
  normalization.std = loaded.config.data.std.values();
  normalization.pad = row_of(loaded.config.model.kind).pad;
  return normalization;
}

// Lists are JSON.
std::map<std::string, std::string> metadata_of(
    const CheckpointModel& loaded, bool normalizes) {
  using Json = nlohmann::json;
  const Dataset& format = loaded.format;
  std::map<std::string, std::string> facts = {
      {"input_shape", Json(format.inputs.shape).dump()}};
  if (!format.has_indices()) {
    const auto normalization = normalization_of(loaded);
    facts["input"] = normalizes ? "raw" : "normalized";
    facts["unit"] = format.has_images() ? "255" : "1";
    facts["mean"] = Json(normalization.mean).dump();
    facts["std"] = Json(normalization.std).dump();
  }
  if (has_normalized_targets(loaded.config.data)) {
    facts["output"] = normalizes ? "raw" : "normalized";
    facts["target_mean"] = Json(loaded.config.data.target_mean.values()).dump();
    facts["target_std"] = Json(loaded.config.data.target_std.values()).dump();
  }
  if (format.targets.type != ElementType::float32 && format.targets.shape.empty()) {
    facts["class_names"] = Json(format.class_names).dump();
  }
  if (!format.columns.empty()) {
    facts["input_columns"] = Json(input_columns(loaded)).dump();
    facts["target_columns"] = Json(split(loaded.config.data.target, ',')).dump();
  }
  return facts;
}

}  // namespace

OnnxModel onnx_export(const CheckpointModel& loaded, bool normalizes) {
  if (normalizes && loaded.format.has_indices()) {
    throw ConfigError(
        "[export] the inputs are indices, expected numbers for --normalize; leave out "
        "--normalize");
  }
  Graph graph = *loaded.model->graph();
  convert(graph, at::kFloat);
  if (normalizes) {
    graph = with_normalized_input(std::move(graph), normalization_of(loaded));
    if (has_normalized_targets(loaded.config.data)) {
      graph = with_restored_output(
          std::move(graph), loaded.config.data.target_mean.values(),
          loaded.config.data.target_std.values());
    }
  }
  OnnxModel model = onnx_model(graph);
  model.metadata = metadata_of(loaded, normalizes);
  return model;
}

}  // namespace tandem

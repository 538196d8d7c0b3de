#include "tandem/model/model_file.h"

#include <fmt/core.h>

#include <utility>

#include "tandem/base/error.h"
#include "tandem/graph/pt2.h"
#include "tandem/model/graph_model.h"
#include "tandem/model/script_model.h"

namespace tandem {

namespace {

void check_input(
    const Graph& graph, const std::string& path, const ModelOptions& options) {
  const auto expected = batch_shape(options.input);
  const Value& input = graph.value(graph.input);
  if (at::isFloatingType(input.dtype) == options.index_input) {
    throw ConfigError(fmt::format(
        "[model] the input of '{}' is of {}, but the data has {}; export a network "
        "that accepts {}",
        path, c10::toString(input.dtype),
        options.index_input ? "indices" : "numbers of floating point",
        options.index_input ? "int64" : "float32"));
  }
  if (input.shape != expected) {
    throw ConfigError(fmt::format(
        "[model] the input of '{}' has the shape {}, but the data has {}; export the "
        "network for this shape, or change --data",
        path, text_of(input.shape), text_of(expected)));
  }
}

// TorchScript modules run as they are.
void check_runs_as_it_is(const std::string& path, const ModelOptions& options) {
  const char* obstacle = options.dtype != at::kFloat ? "--precision fp64"
                         : !options.dropout          ? "--no-dropout"
                         : options.stack_statistics  ? "--buffers sync"
                                                     : nullptr;
  if (obstacle != nullptr) {
    throw ConfigError(fmt::format(
        "[model] {} does not apply to '{}', a TorchScript module, which runs as it is; "
        "leave it out, or export the network with torch.export",
        obstacle, path));
  }
}

}  // namespace

std::unique_ptr<Model> load_model_file(
    const std::string& path, const ModelOptions& options) {
  if (is_script_file(path)) {
    check_runs_as_it_is(path, options);
    return load_script_model(path);
  }
  Graph graph =
      read_pt2(path, options.has_values ? StateValues::read : StateValues::unread);
  check_input(graph, path, options);
  convert(graph, options.dtype);
  if (!options.dropout) {
    turn_dropout_off(graph);
  }
  return make_graph_model(std::move(graph), options.stack_statistics);
}

}  // namespace tandem

#include "app/worker/model_program.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include "tandem/base/error.h"
#include "tandem/exec/compiled/chain_executor.h"
#include "tandem/exec/program/program_executor.h"
#include "tandem/graph/pt2.h"
#include "tandem/model/graph_model.h"

namespace tandem::app {

namespace {

Batch random_batch(const Graph& graph, int64_t samples) {
  const Value& input = graph.value(graph.input);
  const auto sizes = sizes_at(input.shape, samples);
  Batch batch;
  batch.inputs = at::isFloatingType(input.dtype) ? at::randn(sizes, input.dtype)
                                                 : at::zeros(sizes, input.dtype);
  auto targets = sizes_at(graph.value(graph.output).shape, samples);
  if (targets.size() > 1) {
    targets.erase(targets.begin() + class_dim(static_cast<int64_t>(targets.size())));
  }
  batch.targets = at::zeros(targets, at::kLong);
  batch.global_count = samples;
  return batch;
}

}  // namespace

void print_program(const std::string& path, const ProgramDump& dump) {
  Graph graph = read_pt2(path);
  convert(graph, at::kFloat);
  const auto model = make_graph_model(std::move(graph));
  ModelArenas arenas(model->parameters(), model->buffers());
  StageOptions options;
  options.measure = dump.profile;
  if (chain_obstacle(*model->graph(), options).empty()) {
    throw ConfigError(
        "[model] '" + path +
        "' is a chain of layers, which compiled does not record; tandem train "
        "--trace shows the time of its layers");
  }
  const auto executor = make_compiled_executor(*model, arenas, options);
  const Batch batch = random_batch(*model->graph(), dump.batch_size);
  NoSink sink;
  for (int64_t step = 0; step < (dump.profile ? 6 : 1); ++step) {
    StepContext context;
    context.step = step;
    (void)executor->forward(0, batch, context);
    executor->backward(0, {}, context, sink);
    executor->parameters_changed({});
    executor->zero_gradients();
  }
  fmt::print("{}", executor->program_table());
}

}  // namespace tandem::app

#pragma once

#include <ATen/ops/arange.h>
#include <c10/util/accumulate.h>

#include <memory>
#include <string>
#include <utility>

#include "tandem/exec/compiled/program/image_planner.h"
#include "tandem/exec/program/program_executor.h"
#include "tandem/model/graph_model.h"
#include "tests/exec/threads.h"
#include "tests/graph/fixtures.h"
#include "tests/graph/graphs.h"

namespace tandem {

/// Returns a program executor that repeats LibTorch's operators.
inline std::unique_ptr<StageExecutor> make_plain(
    Model& model, ModelArenas& arenas, const StageOptions& options) {
  return make_program_executor(model, arenas, options, &plan_plain_calls);
}

/// Returns a program executor with the kernels for images.
inline std::unique_ptr<StageExecutor> make_with_kernels(
    Model& model, ModelArenas& arenas, const StageOptions& options) {
  return make_program_executor(model, arenas, options, &plan_image_kernels);
}

/// Returns the network of a fixture.
inline std::unique_ptr<Model> fixture_network(
    const std::string& name, at::ScalarType dtype = at::kFloat) {
  Graph graph = read_fixture(name + "-2.15.0.pt2");
  convert(graph, dtype);
  return make_graph_model(std::move(graph));
}

/// Returns the samples [first, first + count) for a network.
inline Batch batch_for(const Model& model, int64_t first, int64_t count) {
  const Graph& graph = *model.graph();
  auto shape = sizes_at(graph.value(graph.input).shape, 1);
  shape.erase(shape.begin());
  const Threads one(1);
  Batch batch;
  const auto values = fixture_images(shape, first).narrow(0, 0, count);
  batch.inputs = graph.value(graph.input).dtype == at::kLong
                     ? values.add(0.5).mul(7).to(at::kLong)
                     : values.to(graph.value(graph.input).dtype);
  auto targets = sizes_at(graph.value(graph.output).shape, count);
  targets.pop_back();
  batch.targets =
      at::arange(c10::multiply_integers(targets)).add(first).remainder(4).view(targets);
  batch.first_position = first;
  batch.global_count = batch.targets.numel();
  return batch;
}

}  // namespace tandem

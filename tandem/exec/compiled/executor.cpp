#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/core/parallel.h"
#include "tandem/exec/compiled/bound_layers.h"
#include "tandem/exec/compiled/chain_executor.h"
#include "tandem/exec/compiled/graph_layers.h"
#include "tandem/exec/compiled/loss_kernels.h"
#include "tandem/exec/compiled/onednn_library.h"
#include "tandem/exec/compiled/operation.h"
#include "tandem/exec/compiled/pointwise_kernels.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/graph/interpreter.h"
#include "tandem/kernels/flush_denormals.h"
#include "tandem/kernels/isa.h"

namespace tandem {

namespace {

// Layers that are compiled for one slot and one batch size, for training or evaluation.
// Each plan has its own memory, so that several micro-batches can be in flight.
//
//   input -> ops[0] -> ops[1] -> ... -> output_change -> output -> loss
//   grad_input <- grad_input_change <- ops[0] <- ops[1] <- ... <- grad_output <- loss
//
// An arrow is a memory in the layout that the operation at its start has chosen. An
// operation that needs another layout has its own LayoutChange.
struct Plan {
  at::Tensor input;
  // One operation per bound layer.
  std::vector<std::unique_ptr<OnednnOp>> ops;
  LayoutChange output_change;
  // Output of the last layer, contiguous float32 like the gradients below.
  at::Tensor output;
  // Gradient of the output, written before backward.
  at::Tensor grad_output;
  // Gradient of the input; undefined unless StageOptions::wants_input_gradient().
  at::Tensor grad_input;
  LayoutChange grad_input_change;
  at::Tensor targets;
  // Size of the input and of the values between the layers, in bytes.
  int64_t bytes = 0;
};

// Replaces bfloat16 with float32 and roundings if this CPU does not compute in
// bfloat16.
Numerics on_this_cpu(Numerics numerics) {
  if (numerics.product == at::kBFloat16 && !has_bf16()) {
    numerics.product = numerics.storage;
    numerics.rounding = Rounding::bf16;
  }
  return numerics;
}

// Returns the index of the first layer whose gradients are needed. If the gradient of
// the stage's input is needed, it is 0. Otherwise it is the first layer with trainable
// parameters, or the number of layers if no layer has any.
size_t first_with_gradient(
    const std::vector<BoundLayer>& layers, bool wants_input_gradient) {
  size_t first = 0;
  while (!wants_input_gradient && first < layers.size() &&
         layers[first].slots.empty()) {
    ++first;
  }
  return first;
}

// Sets FusedLayer::first in the model's first stage.
void mark_first(std::vector<BoundLayer>& layers) {
  for (auto& bound : layers) {
    if (bound.tensors.weight.defined()) {
      bound.fused.first = true;
      return;
    }
  }
}

// Returns the names of the layers in the graph.
std::vector<std::string> names_in(
    const Graph& graph, const std::vector<BoundLayer>& layers) {
  std::map<int64_t, std::string> names;
  for (const auto& node : graph.nodes) {
    names[node.number] = layer_name(node);
  }
  std::vector<std::string> found;
  for (const auto& bound : layers) {
    found.push_back(names[bound.fused.layer.place]);
  }
  return found;
}

// Runs a network of a file with LibTorch's kernels, which check shapes. The kernels of
// this executor use the shapes that the file states.
void check_stated_shapes(const Graph& graph) {
  if (!graph.states_shapes) {
    return;
  }
  const c10::AutoGradMode no_grad(false);
  const Value& input = graph.value(graph.input);
  const auto sizes = sizes_at(input.shape, std::max<int64_t>(1, graph.min_samples));
  ForwardContext evaluation;
  evaluation.training = false;
  static_cast<void>(
      Interpreter(graph, {}).run(at::zeros(sizes, input.dtype), evaluation));
}

class OnednnExecutor : public StageExecutor {
 public:
  OnednnExecutor(Model& model, ModelArenas& arenas, const StageOptions& options)
      : options_(options),
        evaluation_loss_(evaluation_loss(options.loss)),
        numerics_(on_this_cpu(options.numerics)),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        layers_(bind_layers(layers_in(*model.graph()).layers, arenas)),
        names_(names_in(*model.graph(), layers_)),
        first_with_gradient_(
            first_with_gradient(layers_, options.wants_input_gradient())) {
    if (options_.first) {
      mark_first(layers_);
    }
    for (const auto& segment : arenas.parameters().layout().segments()) {
      is_trainable_.push_back(segment.trainable);
    }
    bool bf16 = false;
    for (auto& bound : layers_) {
      bound.fused.bf16_input = std::exchange(bf16, false);
      bf16 = has_bf16_output(bound.fused);
    }
    set_onednn_threads(at::get_num_threads());
    parallel_for(
        0, at::get_num_threads(), 1, [](int64_t, int64_t) { flush_denormals(); });
  }

  StageResult forward(
      int slot, const Batch& batch, const StepContext& context) override {
    const FlushDenormals flush;
    const TraceSpan span(context.trace, "forward", "forward");
    Plan& plan = plan_for(slot, batch.inputs.sizes().vec(), context.training);
    plan.input.copy_(batch.inputs);
    if (context.training && options_.first && numerics_.rounding == Rounding::fp16_o2) {
      round_to_fp16(plan.input.numel(), plan.input.data_ptr<float>());
    }
    OnednnPass pass{samples_of(batch, context)};
    for (size_t i = 0; i < layers_.size(); ++i) {
      pass.parameters_version =
          layers_[i].tensors.is_trained() ? parameters_version_ : frozen_version_;
      const TraceSpan layer(context.trace, "forward", "forward ", names_[i]);
      plan.ops[i]->forward(pass);
    }
    plan.output_change.run(stream_);
    plan.targets = batch.targets.contiguous();
    StageResult result;
    result.output = plan.output;
    if (options_.last) {
      const TraceSpan loss(context.trace, "forward", "forward loss");
      result.sums = sums_of(plan, context.training, batch.ignored);
    }
    if (context.training) {
      in_flight_[slot] = &plan;
    }
    return result;
  }

  at::Tensor backward(
      int slot, const at::Tensor& grad_output, const StepContext& context,
      GradientSink& sink) override {
    const auto found = in_flight_.find(slot);
    TANDEM_CHECK(found != in_flight_.end(), "backward without forward");
    const FlushDenormals flush;
    const TraceSpan span(context.trace, "backward", "backward");
    Plan& plan = *found->second;
    in_flight_.erase(found);
    if (options_.last) {
      const TraceSpan loss(context.trace, "backward", "backward loss");
      loss_gradient(
          options_.loss, plan.output, plan.targets,
          context.loss_weight * context.loss_scale, plan.grad_output.data_ptr<float>());
      if (output_is_fp16()) {
        round_to_fp16(plan.grad_output.numel(), plan.grad_output.data_ptr<float>());
      }
    } else {
      plan.grad_output.copy_(grad_output);
    }
    for (size_t i = layers_.size(); i-- > first_with_gradient_;) {
      run_backward(plan, i, context, sink);
    }
    accumulate_ = true;
    if (!options_.wants_input_gradient()) {
      return {};
    }
    plan.grad_input_change.run(stream_);
    return plan.grad_input.clone();
  }

  void parameters_changed(const ArenaRange& range) override {
    ++parameters_version_;
    if (!is_trainable_.at(static_cast<size_t>(range.segment))) {
      ++frozen_version_;
    }
  }

  void zero_gradients() override {
    accumulate_ = false;
  }

  int64_t kept_bytes() const override {
    return std::accumulate(
        in_flight_.begin(), in_flight_.end(), int64_t{0},
        [](int64_t sum, const auto& flight) { return sum + flight.second->bytes; });
  }

  ExecutorKind kind() const override {
    return ExecutorKind::compiled;
  }

  bool depends_on_threads() const override {
    return false;
  }

 private:
  using PlanKey = std::tuple<int, std::vector<int64_t>, bool>;

  Plan& plan_for(int slot, const std::vector<int64_t>& dims, bool training) {
    Plan& plan = plans_[PlanKey{slot, dims, training}];
    if (plan.ops.empty()) {
      // Evaluation computes in float32.
      fill(plan, dims, {engine_, stream_, training, training ? numerics_ : Numerics()});
    }
    return plan;
  }

  void fill(Plan& plan, const std::vector<int64_t>& dims, const OnednnContext& context)
      const {
    dnnl::memory value = plain_memory(dims, engine_);
    plan.input = tensor_over(value);
    for (const auto& bound : layers_) {
      plan.ops.push_back(make_onednn_op(bound.fused, bound.tensors, context));
      plan.bytes += static_cast<int64_t>(value.get_desc().get_size());
      value = plan.ops.back()->plan_forward(value);
    }
    value = plan.output_change.plan(value, plain_desc(dims_of(value)), context);
    plan.output = tensor_over(value);
    if (!context.training) {
      return;
    }
    dnnl::memory grad = plain_memory(dims_of(value), engine_);
    plan.grad_output = tensor_over(grad);
    for (size_t i = layers_.size(); i-- > first_with_gradient_;) {
      grad = plan.ops[i]->plan_backward(grad, wants_input_grad(i));
    }
    if (options_.wants_input_gradient()) {
      plan.grad_input =
          tensor_over(plan.grad_input_change.plan(grad, plain_desc(dims), context));
    }
  }

  bool output_is_fp16() const {
    return numerics_.rounding == Rounding::fp16_o2 ||
           (numerics_.rounding == Rounding::fp16_o1 &&
            rounds_of(layers_.back().fused.layer) != RoundedValues::output_in_o2);
  }

  bool wants_input_grad(size_t index) const {
    return options_.wants_input_gradient() || index > first_with_gradient_;
  }

  void run_backward(
      Plan& plan, size_t index, const StepContext& context, GradientSink& sink) const {
    const BoundLayer& bound = layers_[index];
    const TraceSpan span(context.trace, "backward", "backward ", names_[index]);
    plan.ops[index]->backward_parameters(accumulate_);
    for (const size_t slot : bound.slots) {
      sink.gradient_ready(slot);
    }
    if (wants_input_grad(index)) {
      plan.ops[index]->backward_input();
    }
  }

  StepSums sums_of(const Plan& plan, bool training, int64_t ignored) const {
    const LossSums found = sum_losses(
        training ? options_.loss : evaluation_loss_, plan.output, plan.targets);
    return {
        found.loss, found.metric, static_cast<double>(plan.targets.numel() - ignored)};
  }

  StageOptions options_;
  Loss evaluation_loss_;
  Numerics numerics_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<BoundLayer> layers_;
  // Names of `layers_` in traces.
  std::vector<std::string> names_;
  size_t first_with_gradient_;
  std::map<PlanKey, Plan> plans_;
  std::map<int, Plan*> in_flight_;
  // True for the segments of the parameters that are trainable.
  std::vector<bool> is_trainable_;
  // Version of all parameters, and of the parameters of frozen layers.
  int64_t parameters_version_ = 0;
  int64_t frozen_version_ = 0;
  // True if the next backward adds to the gradient arena instead of overwriting it.
  bool accumulate_ = true;
};

}  // namespace

std::string chain_obstacle(const Graph& graph, const StageOptions& options) {
  const std::string obstacle = layers_in(graph).obstacle;
  if (!obstacle.empty()) {
    return obstacle;
  }
  if (options.last && !options.loss.of_numbers() &&
      graph.value(graph.output).shape.size() != 2) {
    return "it has losses for one class per sample only, but the output is " +
           text_of(graph.value(graph.output).shape);
  }
  return "";
}

std::unique_ptr<StageExecutor> make_chain_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options) {
  check_stated_shapes(*model.graph());
  return std::make_unique<OnednnExecutor>(model, arenas, options);
}

}  // namespace tandem

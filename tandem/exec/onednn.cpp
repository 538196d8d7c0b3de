#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>
#include <xmmintrin.h>

#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/exec/onednn_ops.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {

namespace {

// Denormal numbers slow arithmetic down many times, and mean nothing in training.
constexpr unsigned kFlushDenormals = 0x8040;

class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | kFlushDenormals);
  }
  ~FlushDenormals() {
    _mm_setcsr(before_);
  }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned before_;
};

// A layer with its tensors. A ReLU that is part of the layer before has none of its
// own.
struct BoundLayer {
  Layer layer;
  bool fused_relu = false;
  OnednnTensors tensors;
  // Places of the parameters in the arenas' layout; empty: there are none. In the order
  // of the arena.
  std::vector<size_t> slots;
};

// The layers compiled for one size of batch. Memory of its own, so that several may be
// in flight.
struct Plan {
  dnnl::memory input;
  // One for each bound layer.
  std::vector<std::unique_ptr<OnednnOp>> ops;
  // In rows.
  dnnl::memory output;
  LayoutChange output_change;
  // In rows, written before backward.
  dnnl::memory grad_output;
  // In rows, when the stage before wants it.
  dnnl::memory grad_input;
  LayoutChange grad_input_change;
  at::Tensor targets;
  // Of the input and the layers' outputs.
  int64_t bytes = 0;
};

at::Tensor tensor_over(const dnnl::memory& memory) {
  return at::from_blob(memory.get_data_handle(), memory.get_desc().dims(), at::kFloat);
}

// Finds the tensors of layers in a model's arenas.
class Binder {
 public:
  explicit Binder(ModelArenas& arenas) : arenas_(arenas) {
    for (const auto& named : arenas.state()) {
      tensors_[named.name] = named.tensor;
    }
    const auto& slots = arenas.parameters().layout().slots();
    for (size_t i = 0; i < slots.size(); ++i) {
      slots_[slots[i].name] = i;
    }
  }

  std::vector<BoundLayer> bind(const std::vector<Layer>& layers) const {
    std::vector<BoundLayer> bound;
    for (size_t i = 0; i < layers.size(); ++i) {
      BoundLayer entry;
      entry.layer = layers[i];
      bind_tensors(entry);
      entry.fused_relu = i + 1 < layers.size() &&
                         layers[i + 1].kind == LayerKind::relu &&
                         (entry.layer.kind == LayerKind::conv2d ||
                          entry.layer.kind == LayerKind::linear);
      i += entry.fused_relu ? 1 : 0;
      bound.push_back(std::move(entry));
    }
    return bound;
  }

 private:
  void bind_tensors(BoundLayer& entry) const {
    const std::string weight = entry.layer.name + ".weight";
    const std::string bias = entry.layer.name + ".bias";
    if (slots_.count(weight) == 0) {
      return;
    }
    entry.slots = {slots_.at(bias), slots_.at(weight)};
    entry.tensors = {
        tensors_.at(weight),
        tensors_.at(bias),
        arenas_.gradients().view(slots_.at(weight)),
        arenas_.gradients().view(slots_.at(bias)),
        buffer(entry.layer.name + ".running_mean"),
        buffer(entry.layer.name + ".running_var"),
        buffer(entry.layer.name + ".num_batches_tracked")};
  }

  at::Tensor buffer(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? at::Tensor() : found->second;
  }

  ModelArenas& arenas_;
  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, size_t> slots_;
};

class OnednnExecutor : public StageExecutor {
 public:
  OnednnExecutor(Model& model, ModelArenas& arenas, const StageOptions& options)
      : options_(options),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        layers_(Binder(arenas).bind(*model.layers())) {
    // Nobody wants the gradient of what lies before the first parameters.
    while (options_.first && first_with_gradient_ < layers_.size() &&
           layers_[first_with_gradient_].slots.empty()) {
      ++first_with_gradient_;
    }
    at::parallel_for(0, at::get_num_threads(), 1, [](int64_t, int64_t) {
      _mm_setcsr(_mm_getcsr() | kFlushDenormals);
    });
  }

  StageResult forward(
      int slot, const Batch& batch, const StepContext& context) override {
    const FlushDenormals flush;
    Plan& plan = plan_for(slot, batch.inputs.sizes().vec(), context.training);
    tensor_over(plan.input).copy_(batch.inputs);
    const OnednnPass pass{
        {context.seed, context.epoch, batch.first_position, batch.position_stride},
        parameters_version_};
    for (const auto& op : plan.ops) {
      op->forward(pass);
    }
    plan.output_change.run(stream_);
    plan.targets = batch.targets;
    StageResult result;
    result.output = tensor_over(plan.output);
    if (options_.last) {
      result.sums = sums_of(result.output, batch);
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
    Plan& plan = *found->second;
    in_flight_.erase(found);
    const auto grad = tensor_over(plan.grad_output);
    grad.copy_(options_.last ? loss_gradient(plan, context.loss_weight) : grad_output);
    for (size_t i = layers_.size(); i-- > first_with_gradient_;) {
      run_backward(plan, i, context, sink);
    }
    if (options_.first) {
      return {};
    }
    plan.grad_input_change.run(stream_);
    return tensor_over(plan.grad_input).clone();
  }

  void parameters_changed(const ArenaRange&) override {
    ++parameters_version_;
  }

  Readiness readiness() const override {
    return Readiness::per_parameter;
  }

  int64_t kept_bytes() const override {
    return std::accumulate(
        in_flight_.begin(), in_flight_.end(), int64_t{0},
        [](int64_t sum, const auto& flight) { return sum + flight.second->bytes; });
  }

  const char* name() const override {
    return "onednn";
  }

 private:
  using PlanKey = std::tuple<int, std::vector<int64_t>, bool>;

  Plan& plan_for(int slot, const std::vector<int64_t>& dims, bool training) {
    Plan& plan = plans_[PlanKey{slot, dims, training}];
    if (plan.ops.empty()) {
      fill(plan, dims, {engine_, stream_, training});
    }
    return plan;
  }

  void fill(Plan& plan, const std::vector<int64_t>& dims, const OnednnContext& context)
      const {
    plan.input = plain_memory(dims, engine_);
    dnnl::memory value = plan.input;
    for (const auto& bound : layers_) {
      plan.ops.push_back(
          make_onednn_op(bound.layer, bound.fused_relu, bound.tensors, context));
      plan.bytes += static_cast<int64_t>(value.get_desc().get_size());
      value = plan.ops.back()->plan_forward(value);
    }
    const auto rows = plain_memory(value.get_desc().dims(), engine_);
    plan.output = plan.output_change.plan(value, rows.get_desc(), context);
    if (!context.training) {
      return;
    }
    plan.grad_output = rows;
    dnnl::memory grad = rows;
    for (size_t i = layers_.size(); i-- > first_with_gradient_;) {
      grad = plan.ops[i]->plan_backward(grad, wants_input_grad(i));
    }
    if (!options_.first) {
      plan.grad_input =
          plan.grad_input_change.plan(grad, plan.input.get_desc(), context);
    }
  }

  bool wants_input_grad(size_t index) const {
    return !options_.first || index > first_with_gradient_;
  }

  void run_backward(
      Plan& plan, size_t index, const StepContext& context, GradientSink& sink) const {
    const BoundLayer& bound = layers_[index];
    if (context.trace != nullptr && !bound.layer.name.empty()) {
      context.trace->mark("compute", "backward " + bound.layer.name);
    }
    plan.ops[index]->backward_parameters();
    for (const size_t slot : bound.slots) {
      sink.gradient_ready(slot);
    }
    if (wants_input_grad(index)) {
      plan.ops[index]->backward_input();
    }
  }

  at::Tensor sums_of(const at::Tensor& output, const Batch& batch) const {
    auto sums = at::empty({3}, at::kDouble);
    sums[0].copy_(summed_loss(options_.loss.kind, output, batch.targets));
    sums[1].copy_(count_correct(options_.loss.kind, output, batch.targets));
    sums[2].fill_(batch.count());
    return sums;
  }

  at::Tensor loss_gradient(const Plan& plan, double weight) const {
    const auto output = tensor_over(plan.output);
    if (options_.loss.kind == LossKind::mse) {
      return output.sub(plan.targets).mul_(2 * weight);
    }
    const auto classes = plan.targets.unsqueeze(1);
    if (options_.loss.kind == LossKind::nll) {
      return at::zeros_like(output).scatter_(1, classes, -weight);
    }
    return output.softmax(1).mul_(weight).scatter_add_(
        1, classes, at::full(classes.sizes(), -weight, output.options()));
  }

  StageOptions options_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<BoundLayer> layers_;
  size_t first_with_gradient_ = 0;
  std::map<PlanKey, Plan> plans_;
  std::map<int, Plan*> in_flight_;
  int64_t parameters_version_ = 0;
};

// Why it cannot compile a model, "" when it can.
std::string obstacle(
    const Model& model, const ModelArenas& arenas, const StageOptions& options) {
  if (options.bf16) {
    return "it computes in float32, not in bf16";
  }
  if (model.layers() == nullptr) {
    return "the model is not a plain sequence of layers";
  }
  for (const auto& named : arenas.state()) {
    if (at::isFloatingType(named.tensor.scalar_type()) &&
        named.tensor.scalar_type() != at::kFloat) {
      return "it computes in float32, and " + named.name + " is " +
             c10::toString(named.tensor.scalar_type());
    }
  }
  for (const auto& tensor : arenas.tensors()) {
    if (!tensor.requires_grad() || !tensor.is_contiguous()) {
      return "some parameters are frozen, or not contiguous";
    }
  }
  return "";
}

}  // namespace

std::unique_ptr<StageExecutor> make_onednn_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options) {
  const std::string reason = obstacle(model, arenas, options);
  if (!reason.empty()) {
    throw ConfigError(
        "[exec] executor onednn cannot run this model: " + reason +
        "; use --executor eager");
  }
  return std::make_unique<OnednnExecutor>(model, arenas, options);
}

}  // namespace tandem

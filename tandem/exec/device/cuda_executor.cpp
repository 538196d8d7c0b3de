#include "tandem/exec/device/cuda_executor.h"

#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/exec/device/cuda_plan.h"

namespace tandem {

namespace {

bool ends_with_log_softmax(const std::vector<Layer>& layers) {
  return !layers.empty() && layers.back().kind == LayerKind::log_softmax;
}

bool is_folded(const std::vector<Layer>& layers, const StageOptions& options) {
  return ends_with_log_softmax(layers) && options.last &&
         options.loss.kind != LossKind::mse;
}

CudaStage stage_of(
    const Model& model, ModelArenas& arenas, const StageOptions& options) {
  CudaStage stage;
  auto layers = *model.layers();
  stage.ends_with_log_softmax = is_folded(layers, options);
  if (stage.ends_with_log_softmax) {
    layers.pop_back();
  }
  stage.layers = bind_layers(layers, arenas);
  stage.options = options;
  stage.dtype = arenas.tensors().front().scalar_type();
  stage.device = arenas.device();
  stage.kernels = arenas.parameters().kernels().get();
  return stage;
}

class CudaExecutor : public StageExecutor {
 public:
  CudaExecutor(CudaStage stage, std::function<cuda::Stream()> current_stream)
      : stage_(std::move(stage)), current_stream_(std::move(current_stream)) {}

  StageResult forward(
      int slot, const Batch& batch, const StepContext& context) override {
    CudaPlan& plan = plan_for(slot, batch.inputs.sizes().vec(), context.training);
    plan.take(batch, context);
    plan.forward(context, current_stream_());
    StageResult result;
    result.output = plan.output();
    if (stage_.options.last) {
      result.sums = plan.sums();
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
    CudaPlan& plan = *found->second;
    in_flight_.erase(found);
    plan.backward(grad_output, accumulate_, context, sink, current_stream_());
    accumulate_ = true;
    return stage_.options.first ? at::Tensor() : plan.grad_input().clone();
  }

  void parameters_changed(const ArenaRange&) override {}

  void zero_gradients() override {
    accumulate_ = false;
  }

  Readiness readiness() const override {
    return Readiness::per_parameter;
  }

  int64_t kept_bytes() const override {
    return std::accumulate(
        in_flight_.begin(), in_flight_.end(), int64_t{0},
        [](int64_t sum, const auto& flight) {
          return sum + flight.second->kept_bytes();
        });
  }

  ExecutorKind kind() const override {
    return ExecutorKind::cuda;
  }

 private:
  using PlanKey = std::tuple<int, std::vector<int64_t>, bool>;

  CudaPlan& plan_for(int slot, const std::vector<int64_t>& sizes, bool training) {
    auto& plan = plans_[PlanKey{slot, sizes, training}];
    if (plan == nullptr) {
      plan = std::make_unique<CudaPlan>(stage_, sizes, training);
    }
    return *plan;
  }

  CudaStage stage_;
  std::function<cuda::Stream()> current_stream_;
  std::map<PlanKey, std::unique_ptr<CudaPlan>> plans_;
  std::map<int, CudaPlan*> in_flight_;
  // Whether the gradient arena holds something to add to.
  bool accumulate_ = true;
};

std::string dtype_obstacle(const ModelArenas& arenas, Precision precision) {
  const auto dtype =
      arenas.tensors().empty() ? at::kFloat : arenas.tensors().front().scalar_type();
  for (const auto& named : arenas.state()) {
    const auto found = named.tensor.scalar_type();
    if (!at::isFloatingType(found)) {
      continue;
    }
    if (found != at::kFloat && found != at::kDouble) {
      return "it computes in float32 and float64, and " + named.name + " is " +
             c10::toString(found);
    }
    if (found != dtype) {
      return "parameters and buffers are of several types";
    }
  }
  if (precision == Precision::fp16) {
    return "it does not round to float16";
  }
  const bool rounds = precision == Precision::bf16 || precision == Precision::tf32;
  return rounds && dtype == at::kDouble
             ? std::string("its products of ") + name_of(precision) +
                   " are of float32 values, and parameters are float64"
             : "";
}

}  // namespace

std::string cuda_obstacle(
    const Model& model, const ModelArenas& arenas, const StageOptions& options) {
  if (auto reason = layers_obstacle(model, arenas, options); !reason.empty()) {
    return reason;
  }
  if (arenas.tensors().empty()) {
    return "the model has no parameters";
  }
  if (arenas.device().is_cpu()) {
    return "it computes on a GPU, and the model is in main memory";
  }
  if (auto reason = dtype_obstacle(arenas, options.precision); !reason.empty()) {
    return reason;
  }
  auto layers = *model.layers();
  if (is_folded(layers, options)) {
    layers.pop_back();
  }
  for (const auto& fused : fuse_relus(layers)) {
    if (auto reason = cuda_layer_obstacle(fused); !reason.empty()) {
      return reason;
    }
  }
  return "";
}

std::unique_ptr<StageExecutor> make_cuda_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options,
    std::function<cuda::Stream()> current_stream) {
  const std::string reason = cuda_obstacle(model, arenas, options);
  if (!reason.empty()) {
    throw ConfigError(
        "[exec] executor cuda cannot run this model: " + reason +
        "; use --executor eager");
  }
  return std::make_unique<CudaExecutor>(
      stage_of(model, arenas, options), std::move(current_stream));
}

}  // namespace tandem

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"
#include "tandem/core/torch_compat.h"
#include "tandem/exec/autocast.h"
#include "tandem/exec/gradient_hooks.h"
#include "tandem/exec/stage_executor.h"
#include "tandem/graph/call_recorder.h"
#include "tandem/kernels/isa.h"

namespace tandem {

namespace {

// LibTorch checks only that the CPU supports bfloat16, and fails if oneDNN does not.
// These cases are Debian's oneDNN on Arm, and a limit in ONEDNN_MAX_CPU_ISA.
bool onednn_lacks_bf16() {
  return kernel_isa() == Isa::neon ||
         (kernel_isa() != Isa::avx512 && get_env("ONEDNN_MAX_CPU_ISA").has_value());
}

// Sets flags of the whole process, so that runs are repeatable. By default cuDNN may
// round products of float32 to tf32.
void set_cuda_flags(bool tf32) {
  auto& context = at::globalContext();
  context.setAllowTF32CuDNN(tf32);
  context.setAllowTF32CuBLAS(tf32);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
}

class EagerExecutor : public StageExecutor {
 public:
  EagerExecutor(Model& model, ModelArenas& arenas, const StageOptions& options)
      : model_(model),
        arenas_(arenas),
        options_(options),
        evaluation_loss_(evaluation_loss(options.loss)),
        hooks_(arenas, [this](size_t slot) {
          if (sink_ != nullptr) {
            sink_->gradient_ready(slot);
          }
        }) {
    if (is_fp16(options.numerics.rounding) && model.graph() == nullptr) {
      throw ConfigError(
          "[exec] precision is fp16, which rounds the values between layers, and the "
          "model is only a function; use --precision bf16 or fp32");
    }
    if (arenas.device().is_cuda()) {
      set_cuda_flags(options.numerics.tf32);
    } else if (options.numerics.product == at::kBFloat16 && onednn_lacks_bf16()) {
      // This flag applies to the whole process, even with thread ranks.
      at::globalContext().setUserEnabledMkldnn(false);
    }
  }

  StageResult forward(
      int slot, const Batch& batch, const StepContext& context) override {
    const c10::AutoGradMode grad(context.training);
    const TraceSpan span(context.trace, "forward", "forward");
    const at::ScalarType type = batch.inputs.scalar_type();
    // Indices keep their type.
    auto input = batch.inputs.to(
        arenas_.device(), at::isFloatingType(type) ? dtype() : type,
        /*non_blocking=*/true);
    if (context.training && options_.wants_input_gradient()) {
      input = input.detach().set_requires_grad(true);
    }
    StageResult result;
    laps_ = TraceLaps(context.trace, "forward");
    {
      const Autocast autocast(
          options_.numerics.product == at::kBFloat16 && context.training,
          arenas_.device().type());
      result.output =
          model_.forward(input, forward_context(batch, context)).to(dtype());
    }
    if (auto* recorder = CallRecorder::current();
        recorder != nullptr && model_.graph() == nullptr) {
      record_layer("model", result.output, *recorder);
    }
    at::Tensor loss;
    if (options_.last) {
      const TraceSpan loss_span(context.trace, "forward", "forward loss");
      const auto targets = batch.targets.to(
          arenas_.device(), batch.targets.scalar_type(), /*non_blocking=*/true);
      if (const int64_t classes = std::exchange(options_.num_classes, 0)) {
        // LibTorch's error has many lines and does not mention the model's outputs.
        check_output_shape(result.output.sizes(), targets.sizes(), classes);
      }
      loss = summed_loss(
          context.training ? options_.loss : evaluation_loss_, result.output, targets);
      result.sums = sums_of(result.output, loss, targets, batch.ignored);
    }
    if (context.training) {
      layer_outputs_.push_back(result.output.storage().getWeakStorageImpl());
      layer_outputs_.push_back(input.storage().getWeakStorageImpl());
      in_flight_[slot] = {input, result.output, loss, std::move(layer_outputs_)};
      layer_outputs_.clear();
    }
    return result;
  }

  at::Tensor backward(
      int slot, const at::Tensor& grad_output, const StepContext& context,
      GradientSink& sink) override {
    const auto found = in_flight_.find(slot);
    TANDEM_CHECK(found != in_flight_.end(), "backward without forward");
    const InFlight flight = std::move(found->second);
    in_flight_.erase(found);
    const TraceSpan span(context.trace, "backward", "backward");
    arenas_.attach_gradients();
    const BackwardOnThisThread here;
    laps_ = TraceLaps(context.trace, "backward");
    lap_ = "loss";
    sink_ = &sink;
    try {
      if (options_.last) {
        // The weight is the initial gradient of backward, so it needs no extra pass.
        flight.loss.backward(
            grad_output.defined() ? grad_output
                                  : at::full(
                                        {}, context.loss_weight * context.loss_scale,
                                        flight.loss.options()));
      } else {
        flight.output.backward(grad_output.to(flight.output.device()));
      }
    } catch (...) {
      sink_ = nullptr;
      throw;
    }
    sink_ = nullptr;
    laps_.end("backward ", lap_);
    return options_.wants_input_gradient() ? flight.input.grad() : at::Tensor();
  }

  void parameters_changed(const ArenaRange&) override {}

  void zero_gradients() override {
    arenas_.gradients().zero();
  }

  int64_t kept_bytes() const override {
    // Outputs of layers that compute in place share a storage, which counts once.
    std::map<const c10::StorageImpl*, int64_t> kept;
    // Views of parameters need no memory.
    for (const auto& named : arenas_.state()) {
      kept[named.tensor.storage().unsafeGetStorageImpl()] = 0;
    }
    for (const auto& [slot, flight] : in_flight_) {
      for (const auto& weak : flight.layer_outputs) {
        if (const auto storage = weak.lock()) {
          kept.emplace(storage.get(), static_cast<int64_t>(storage->nbytes()));
        }
      }
    }
    return std::accumulate(
        kept.begin(), kept.end(), int64_t{0},
        [](int64_t sum, const auto& storage) { return sum + storage.second; });
  }

  ExecutorKind kind() const override {
    return ExecutorKind::eager;
  }

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  struct InFlight {
    at::Tensor input;
    at::Tensor output;
    at::Tensor loss;
    // Pointers to outputs that autograd does not keep are expired.
    std::vector<WeakStorage> layer_outputs;
  };

  at::ScalarType dtype() const {
    const auto& segments = arenas_.parameters().layout().segments();
    return segments.empty() ? at::kFloat : segments.front().dtype;
  }

  ForwardContext forward_context(const Batch& batch, const StepContext& context) {
    ForwardContext forward;
    forward.training = context.training;
    if (context.training) {
      forward.rounding = options_.numerics.rounding;
    }
    forward.samples = samples_of(batch, context);
    if (context.training) {
      forward.before_again = [this] {
        if (auto* recorder = CallRecorder::current()) {
          recorder->end_layer();
        } else {
          laps_.end("backward ", lap_);
        }
      };
      forward.after_node = [this, traced = context.trace != nullptr](
                               const Node& node, const at::Tensor& output) {
        if (!in_backward()) {
          layer_outputs_.push_back(output.storage().getWeakStorageImpl());
        }
        if (auto* recorder = CallRecorder::current()) {
          record_layer(layer_name(node), output, *recorder);
        } else if (traced) {
          trace_layer(layer_name(node), output);
        }
      };
    }
    return forward;
  }

  bool in_backward() const {
    return sink_ != nullptr;
  }

  // Records the forward pass of the layer that has just computed `output`, possibly
  // again, and later its backward pass, which lasts until the previous layer's backward
  // pass begins.
  void trace_layer(const std::string& name, const at::Tensor& output) {
    laps_.end(in_backward() ? "again " : "forward ", name);
    before_backward(output, [this, name] {
      laps_.end("backward ", lap_);
      lap_ = name;
    });
  }

  static void record_layer(
      const std::string& name, const at::Tensor& output, CallRecorder& recorder) {
    recorder.end_layer(name);
    before_backward(output, [name, &recorder] { recorder.begin_layer(name); });
  }

  StepSums sums_of(
      const at::Tensor& output, const at::Tensor& loss, const at::Tensor& targets,
      int64_t ignored) const {
    const c10::AutoGradMode no_grad(false);
    auto sums = at::empty({3}, loss.options().dtype(at::kDouble));
    sums[0].copy_(loss.detach());
    sums[1].copy_(metric_sum(options_.loss, output, targets));
    sums[2].fill_(targets.numel() - ignored);
    return StepSums(sums);
  }

  Model& model_;
  ModelArenas& arenas_;
  StageOptions options_;
  Loss evaluation_loss_;
  std::map<int, InFlight> in_flight_;
  // Outputs of the current forward.
  std::vector<WeakStorage> layer_outputs_;
  // Sink of the current backward; null when no backward runs.
  GradientSink* sink_ = nullptr;
  GradientHooks hooks_;
  // Spans of the layers in the current forward or backward, and the name of the layer
  // whose backward runs.
  TraceLaps laps_;
  std::string lap_;
};

}  // namespace

std::unique_ptr<StageExecutor> make_eager_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options) {
  return std::make_unique<EagerExecutor>(model, arenas, options);
}

}  // namespace tandem

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include <map>

#include "tandem/base/error.h"
#include "tandem/exec/gradient_hooks.h"
#include "tandem/exec/stage_executor.h"

namespace tandem {

namespace {

class EagerExecutor : public StageExecutor {
 public:
  EagerExecutor(Model& model, ModelArenas& arenas, const StageOptions& options)
      : model_(model),
        arenas_(arenas),
        options_(options),
        hooks_(arenas, [this](size_t slot) {
          if (sink_ != nullptr) {
            sink_->gradient_ready(slot);
          }
        }) {}

  StageResult forward(
      int slot, const Batch& batch, const StepContext& context) override {
    const c10::AutoGradMode grad(context.training);
    auto input = batch.inputs.to(dtype());
    if (context.training && !options_.first) {
      input = input.detach().set_requires_grad(true);
    }
    StageResult result;
    result.output = model_.forward(input, forward_context(batch, context));
    at::Tensor loss;
    if (options_.last) {
      loss = summed_loss(options_.loss.kind, result.output, batch.targets);
      result.sums = sums_of(result.output, loss, batch);
    }
    if (context.training) {
      in_flight_[slot] = {input, result.output, loss};
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
    arenas_.attach_gradients();
    sink_ = &sink;
    try {
      if (options_.last) {
        // The weight is the gradient that starts backward: no pass of its own.
        flight.loss.backward(at::full({}, context.loss_weight, flight.loss.options()));
      } else {
        flight.output.backward(grad_output);
      }
    } catch (...) {
      sink_ = nullptr;
      throw;
    }
    sink_ = nullptr;
    return options_.first ? at::Tensor() : flight.input.grad();
  }

  void parameters_changed(const ArenaRange&) override {}

  Readiness readiness() const override {
    return Readiness::per_parameter;
  }

  const char* name() const override {
    return "eager";
  }

 private:
  struct InFlight {
    at::Tensor input;
    at::Tensor output;
    at::Tensor loss;
  };
  at::ScalarType dtype() const {
    const auto& segments = arenas_.parameters().layout().segments();
    return segments.empty() ? at::kFloat : segments.front().dtype;
  }

  static ForwardContext forward_context(
      const Batch& batch, const StepContext& context) {
    ForwardContext forward;
    forward.training = context.training;
    forward.samples = {
        context.seed, context.epoch, batch.first_position, batch.position_stride};
    if (Trace* trace = context.training ? context.trace : nullptr) {
      // A hook on a layer's output runs just before the layer's backward.
      forward.after_layer = [trace](const Layer& layer, const at::Tensor& output) {
        if (!layer.name.empty()) {
          output.register_hook([trace, name = layer.name](const at::Tensor&) {
            trace->mark("compute", "backward " + name);
          });
        }
      };
    }
    return forward;
  }

  at::Tensor sums_of(
      const at::Tensor& output, const at::Tensor& loss, const Batch& batch) const {
    const c10::AutoGradMode no_grad(false);
    auto sums = at::empty({3}, at::kDouble);
    sums[0].copy_(loss.detach());
    sums[1].copy_(count_correct(options_.loss.kind, output, batch.targets));
    sums[2].fill_(batch.count());
    return sums;
  }

  Model& model_;
  ModelArenas& arenas_;
  StageOptions options_;
  std::map<int, InFlight> in_flight_;
  // The sink of the backward that is running.
  GradientSink* sink_ = nullptr;
  GradientHooks hooks_;
};

}  // namespace

std::unique_ptr<StageExecutor> make_eager_executor(
    Model& model, ModelArenas& arenas, const StageOptions& options) {
  return std::make_unique<EagerExecutor>(model, arenas, options);
}

}  // namespace tandem

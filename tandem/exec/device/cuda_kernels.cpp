#include "tandem/exec/device/cuda_kernels.h"

#include <utility>

#include "tandem/base/error.h"
#include "tandem/exec/device/cuda_executor.h"
#include "tandem/exec/device/cuda_op_parts.h"
#include "tandem/exec/device_executors.h"
#include "tandem/kernels/cuda/dropout.h"
#include "tandem/kernels/cuda/gather.h"
#include "tandem/kernels/cuda/grad_scaler.h"
#include "tandem/kernels/cuda/update.h"

namespace tandem {

namespace {

// Calls `body` with a zero of the tensor's dtype, float or double.
template <typename Body>
void with_dtype(const at::Tensor& tensor, Body&& body) {
  if (tensor.scalar_type() == at::kDouble) {
    body(double{0});
  } else {
    TANDEM_CHECK(tensor.scalar_type() == at::kFloat, "kernels take float and double");
    body(float{0});
  }
}

cuda::ScalerState state_of(const ScalerTensors& scaler) {
  return {
      scaler.scale.data_ptr<float>(), scaler.growth_tracker.data_ptr<int64_t>(),
      scaler.skipped_steps.data_ptr<int64_t>(), scaler.overflowed.data_ptr<int64_t>()};
}

class CudaKernels : public DeviceKernels, public DeviceExecutors {
 public:
  explicit CudaKernels(CudaHost host) : host_(std::move(host)) {}

  void update_sgd(
      const at::Tensor& param, const at::Tensor& grad,
      const at::Tensor& momentum_buffer, const SgdSettings& settings,
      const GroupConstants& group, const StepScalars* step) const override {
    with_dtype(param, [&](auto zero) {
      using T = decltype(zero);
      cuda::update_sgd(
          param.numel(), data<T>(param), data<T>(grad), data<T>(momentum_buffer),
          settings, group, step, host_.current_stream());
    });
  }

  void update_adam(
      const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
      const at::Tensor& exp_avg_sq, const at::Tensor& max_exp_avg_sq,
      const AdamSettings& settings, const GroupConstants& group,
      const StepScalars* step) const override {
    with_dtype(param, [&](auto zero) {
      using T = decltype(zero);
      cuda::update_adam(
          param.numel(), data<T>(param), data<T>(grad), data<T>(exp_avg),
          data<T>(exp_avg_sq), data<T>(max_exp_avg_sq), settings, group, step,
          host_.current_stream());
    });
  }

  void update_adadelta(
      const at::Tensor& param, const at::Tensor& grad, const at::Tensor& square_avg,
      const at::Tensor& acc_delta, const AdadeltaSettings& settings,
      const GroupConstants& group, const StepScalars* step) const override {
    with_dtype(param, [&](auto zero) {
      using T = decltype(zero);
      cuda::update_adadelta(
          param.numel(), data<T>(param), data<T>(grad), data<T>(square_avg),
          data<T>(acc_delta), settings, group, step, host_.current_stream());
    });
  }

  void unscale(
      const at::Tensor& gradients, const ScalerTensors& scaler) const override {
    with_dtype(gradients, [&](auto zero) {
      using T = decltype(zero);
      cuda::unscale(
          gradients.numel(), data<T>(gradients), state_of(scaler),
          host_.current_stream());
    });
  }

  void end_scaled_step(
      const LossScaleRule& rule, const ScalerTensors& scaler,
      StepScalars* step) const override {
    cuda::update_scaler(rule, state_of(scaler), step, host_.current_stream());
  }

  void fill_dropout_mask(
      const at::Tensor& place, int64_t layer, double p,
      const at::Tensor& mask) const override {
    with_dtype(mask, [&](auto zero) {
      using T = decltype(zero);
      cuda::dropout_mask(
          reinterpret_cast<const BatchPlace*>(place.data_ptr<int64_t>()), layer,
          mask.size(0), mask.size(1), p, data<T>(mask), host_.current_stream());
    });
  }

  void gather_batch(
      const GatherSource& from, const at::Tensor& place, const at::Tensor& inputs,
      const at::Tensor& targets) const override {
    cuda::DeviceImages images{};
    images.pixels = from.pixels.data_ptr<uint8_t>();
    images.labels = from.labels.data_ptr<uint8_t>();
    images.first_held = from.first_held;
    images.channels = from.channels;
    images.height = from.height;
    images.width = from.width;
    images.table = from.table.data_ptr<float>();
    images.pad = from.pad;
    cuda::gather_batch(
        images, from.indices.data_ptr<int64_t>(),
        reinterpret_cast<const BatchPlace*>(place.data_ptr<int64_t>()), inputs.size(0),
        inputs.data_ptr<float>(), targets.data_ptr<int64_t>(), host_.current_stream());
  }

  std::unique_ptr<StageExecutor> make_executor(
      Model& model, ModelArenas& arenas, const StageOptions& options) const override {
    return make_cuda_executor(model, arenas, options, host_.current_stream);
  }

  std::string obstacle(
      const Model& model, const ModelArenas& arenas,
      const StageOptions& options) const override {
    return cuda_obstacle(model, arenas, options);
  }

  at::Tensor host_words(int64_t count) const override {
    return host_.host_words(count);
  }

  std::unique_ptr<CopyStream> copy_stream() const override {
    return host_.copy_stream();
  }

  std::unique_ptr<DeviceGraph> capture(
      const std::function<void()>& work) const override {
    return host_.capture ? host_.capture(work) : nullptr;
  }

  int64_t free_bytes() const override {
    return host_.free_bytes();
  }

 private:
  CudaHost host_;
};

}  // namespace

std::shared_ptr<const DeviceKernels> make_cuda_kernels(CudaHost host) {
  return std::make_shared<const CudaKernels>(std::move(host));
}

}  // namespace tandem

#include "tandem/exec/device/cuda_kernels.h"

#include <ATen/ops/from_blob.h>

#include <utility>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/dropout.h"
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

template <typename T>
T* data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<T>() : nullptr;
}

class CudaKernels : public DeviceKernels {
 public:
  explicit CudaKernels(std::function<cuda::Stream()> current_stream)
      : current_stream_(std::move(current_stream)) {}

  void update_sgd(
      const at::Tensor& param, const at::Tensor& grad,
      const at::Tensor& momentum_buffer, const SgdSettings& settings,
      const GroupConstants& group, const StepScalars* step) const override {
    with_dtype(param, [&](auto zero) {
      using T = decltype(zero);
      cuda::update_sgd(
          param.numel(), data<T>(param), data<T>(grad), data<T>(momentum_buffer),
          settings, group, step, current_stream_());
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
          current_stream_());
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
          data<T>(acc_delta), settings, group, step, current_stream_());
    });
  }

  void fill_dropout_mask(
      const BatchPlace& place, int64_t layer, double p,
      const at::Tensor& mask) const override {
    constexpr int64_t kWords = sizeof(BatchPlace) / sizeof(int64_t);
    auto copy = place;
    // The allocator gives this memory to nobody before the stream has passed the
    // kernel.
    const auto there = at::from_blob(&copy, {kWords}, at::kLong).to(mask.device());
    with_dtype(mask, [&](auto zero) {
      using T = decltype(zero);
      cuda::dropout_mask(
          reinterpret_cast<const BatchPlace*>(there.data_ptr<int64_t>()), layer,
          mask.size(0), mask.size(1), p, data<T>(mask), current_stream_());
    });
  }

 private:
  std::function<cuda::Stream()> current_stream_;
};

}  // namespace

std::shared_ptr<const DeviceKernels> make_cuda_kernels(
    std::function<cuda::Stream()> current_stream) {
  return std::make_shared<const CudaKernels>(std::move(current_stream));
}

}  // namespace tandem

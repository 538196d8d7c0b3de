#include "tandem/parallel/update/device_step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstddef>

namespace tandem {

namespace {

constexpr int64_t kWords = sizeof(StepScalars) / sizeof(int64_t);

static_assert(sizeof(StepScalars) % sizeof(int64_t) == 0, "all of it is words");

}  // namespace

DeviceStep::DeviceStep(const ModelArenas& arenas)
    : words_(at::empty(
          {kWords}, at::TensorOptions(at::kLong).device(arenas.device()))) {}

void DeviceStep::begin(double lr, int64_t step) {
  StepScalars next;
  next.lr = lr;
  next.step = step;
  if (words_.is_cpu()) {
    // The smallest models' steps take 0.1 ms: no operators for 32 bytes.
    scalars() = next;
  } else {
    words_.copy_(at::from_blob(&next, {kWords}, at::kLong));
  }
}

StepScalars& DeviceStep::scalars() {
  return *reinterpret_cast<StepScalars*>(words_.data_ptr<int64_t>());
}

at::Tensor DeviceStep::gradient_scale() {
  return words_.view(at::kDouble)[offsetof(StepScalars, gradient_scale) / 8];
}

}  // namespace tandem

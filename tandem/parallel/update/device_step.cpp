#include "tandem/parallel/update/device_step.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "tandem/core/device/upload.h"

namespace tandem {

namespace {

constexpr int64_t kScalarWords = sizeof(StepScalars) / sizeof(int64_t);

static_assert(sizeof(StepScalars) % sizeof(int64_t) == 0, "all of it is words");

StepScalars scalars_of(double lr, int64_t step) {
  StepScalars next;
  next.lr = lr;
  next.step = step;
  return next;
}

at::Tensor words_for(size_t records, at::Device device) {
  return at::empty(
      {kScalarWords + static_cast<int64_t>(records) * kBatchRecordWords},
      at::TensorOptions(at::kLong).device(device));
}

}  // namespace

DeviceStep::DeviceStep(const ModelArenas& arenas)
    : arenas_(arenas), words_(words_for(0, arenas.device())) {}

void DeviceStep::begin(double lr, int64_t step) {
  bring(scalars_of(lr, step), {});
}

void DeviceStep::begin(
    const StepContext& context, const std::vector<Batch>& micro_batches) {
  std::vector<BatchRecord> records;
  if (!words_.is_cpu()) {
    for (const auto& batch : micro_batches) {
      records.push_back(record_of(batch, context));
    }
  }
  bring(scalars_of(context.lr, context.step + 1), records);
}

void DeviceStep::bring(
    const StepScalars& next, const std::vector<BatchRecord>& records) {
  if (words_.is_cpu()) {
    // The smallest models' steps take 0.1 ms: no operators for 32 bytes.
    scalars() = next;
    return;
  }
  auto& words = all_words_[records.size()];
  if (!words.defined()) {
    words = words_for(records.size(), words_.device());
  }
  words_ = words;
  std::vector<int64_t> all(static_cast<size_t>(words.numel()));
  std::memcpy(all.data(), &next, sizeof(next));
  if (!records.empty()) {
    std::memcpy(
        all.data() + kScalarWords, records.data(),
        records.size() * sizeof(BatchRecord));
  }
  upload(all.data(), words_, arenas_.parameters().kernels().get());
}

StepScalars& DeviceStep::scalars() {
  return *reinterpret_cast<StepScalars*>(words_.data_ptr<int64_t>());
}

at::Tensor DeviceStep::gradient_scale() {
  return words_.view(at::kDouble)[offsetof(StepScalars, gradient_scale) / 8];
}

at::Tensor DeviceStep::record(size_t micro_batch) const {
  if (words_.is_cpu()) {
    return {};
  }
  const int64_t at =
      kScalarWords + static_cast<int64_t>(micro_batch) * kBatchRecordWords;
  return words_.slice(0, at, at + kBatchRecordWords);
}

}  // namespace tandem

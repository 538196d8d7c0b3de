#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "tandem/core/batch_place.h"
#include "tandem/core/device/copy_stream.h"
#include "tandem/core/device/device_graph.h"
#include "tandem/core/step_scalars.h"
#include "tandem/core/updates/adadelta.h"
#include "tandem/core/updates/adam.h"
#include "tandem/core/updates/loss_scale.h"
#include "tandem/core/updates/sgd.h"

namespace tandem {

/// Images as bytes on a device, and what batches of them are (data/loader.h).
struct GatherSource {
  // uint8: images held x (channels * height * width), and their classes.
  at::Tensor pixels;
  at::Tensor labels;
  // float32: what each of the 256 values of a pixel becomes.
  at::Tensor table;
  // int64: samples of the data set, this shard's of the epoch.
  at::Tensor indices;
  // The sample that the first image held is.
  int64_t first_held = 0;
  int64_t channels = 1;
  int64_t height = 0;
  int64_t width = 0;
  // Black pixels on each side.
  int64_t pad = 0;
};

/// What a GradScaler (optim/grad_scaler.h) keeps on a device, no dimensions each.
struct ScalerTensors {
  // float32.
  at::Tensor scale;
  // int64, these and the next.
  at::Tensor growth_tracker;
  at::Tensor skipped_steps;
  // Not 0: a gradient of this step was not finite.
  at::Tensor overflowed;
};

/// The kernels of a device that is not main memory, for what the library computes
/// itself and LibTorch has no operator for. They are put in the stream that LibTorch's
/// operators on the device are put in, so nothing waits for them here. What is given to
/// them lives until they have run. Thread-safe.
///
/// Tensors are on the device, float32 or float64 unless said otherwise, and contiguous.
/// Bits are those of the functions for main memory (optim/, model/dropout.h, data/).
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  /// One step of an optimizer over neighbouring elements of one parameter group:
  /// parameters, gradients, state, flat and of the same size. `step`: on the device.
  /// `momentum_buffer`: undefined without momentum.
  virtual void update_sgd(
      const at::Tensor& param, const at::Tensor& grad,
      const at::Tensor& momentum_buffer, const SgdSettings& settings,
      const GroupConstants& group, const StepScalars* step) const = 0;

  /// `max_exp_avg_sq`: undefined without amsgrad.
  virtual void update_adam(
      const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
      const at::Tensor& exp_avg_sq, const at::Tensor& max_exp_avg_sq,
      const AdamSettings& settings, const GroupConstants& group,
      const StepScalars* step) const = 0;

  virtual void update_adadelta(
      const at::Tensor& param, const at::Tensor& grad, const at::Tensor& square_avg,
      const at::Tensor& acc_delta, const AdadeltaSettings& settings,
      const GroupConstants& group, const StepScalars* step) const = 0;

  /// Divides gradients by the scale, and notes in `overflowed` where one was not
  /// finite.
  virtual void unscale(
      const at::Tensor& gradients, const ScalerTensors& scaler) const = 0;

  /// After all gradients were unscaled: end_scaled_step() of core/updates/loss_scale.h.
  /// `step`: on the device.
  virtual void end_scaled_step(
      const LossScaleRule& rule, const ScalerTensors& scaler,
      StepScalars* step) const = 0;

  /// Fills `mask`, samples x elements, as dropout_mask() of model/dropout.h does.
  /// `place`: a BatchPlace on the device, its words as int64; more may follow.
  virtual void fill_dropout_mask(
      const at::Tensor& place, int64_t layer, double p,
      const at::Tensor& mask) const = 0;

  /// A batch of the samples that `place` names by index_stride and first_index: `place`
  /// is a BatchPlace on the device, its words as int64. `inputs`: float32, samples x
  /// channels x height x width with the padding; `targets`: int64.
  virtual void gather_batch(
      const GatherSource& from, const at::Tensor& place, const at::Tensor& inputs,
      const at::Tensor& targets) const = 0;

  /// Main memory, int64, from which the device copies without the host waiting for it.
  /// When the tensor goes, nobody else gets its memory before such copies have run.
  virtual at::Tensor host_words(int64_t count) const = 0;

  /// A stream for copies of such memory, beside what the device computes.
  virtual std::unique_ptr<CopyStream> copy_stream() const = 0;

  /// What `work`, called once, puts in the calling thread's current stream: the device
  /// notes it instead of running it. Null where it has no such thing, and `work` was
  /// not called.
  ///
  /// Throws what `work` throws; the device has done nothing then. LibTorch throws, in
  /// `work`, where an operator waits for the device.
  virtual std::unique_ptr<DeviceGraph> capture(
      const std::function<void()>& work) const = 0;

  /// Of the device's memory.
  virtual int64_t free_bytes() const = 0;
};

}  // namespace tandem

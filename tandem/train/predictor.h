#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tandem/checkpoint/checkpoint.h"
#include "tandem/data/loader.h"
#include "tandem/model/model.h"

namespace tandem {

/// A trained network for predictions, on the CPU.
///
/// The object owns the network. Its functions are thread-safe. A custom module must
/// allow several threads to call its forward() in evaluation mode, as LibTorch's
/// modules do.
class Predictor {
 public:
  /// Returns the outputs of the network for a batch, one row per sample. Values have
  /// the units of the targets before a normalization (--target-mean). For classes,
  /// these are logits, or logarithms of probabilities if the network ends in a
  /// log-softmax. The softmax over the classes returns probabilities for both.
  ///
  /// `inputs` has the shape of preprocess()'s result. Numbers are converted to the
  /// dtype of the parameters, which is also the dtype of the outputs: float32, or
  /// float64 after training with --precision fp64. The network is in evaluation mode.
  /// The outputs have no gradients.
  ///
  /// Throws ConfigError if `inputs` has another shape, or indices instead of numbers or
  /// the reverse.
  at::Tensor operator()(const at::Tensor& inputs) const;

  /// Converts samples to inputs of the network, as in the training. Normalizes numbers
  /// by the run's mean and std, and pads images if the network needs padding.
  ///
  /// `samples` is on the CPU and has the type of the training's samples, such as uint8
  /// for images. Its first size is the number of samples; the other sizes are those of
  /// sample_shape(). Returns float32, or int64 for indices. Throws ConfigError for
  /// other samples. Throws DataError if a number is not finite.
  at::Tensor preprocess(const at::Tensor& samples) const;

  /// Returns the sizes of a sample before preprocess(), such as {channels, height,
  /// width}.
  const std::vector<int64_t>& sample_shape() const {
    return format_.inputs.shape;
  }

  /// Returns the names of the classes, in the order of the outputs. If the training
  /// data had no names, the names are the numbers of the classes.
  const std::vector<std::string>& class_names() const {
    return format_.class_names;
  }

 private:
  friend Predictor load_model(
      const std::string&, std::unique_ptr<Model>, CheckpointWeights, bool);
  Predictor(std::unique_ptr<Model> model, Dataset format, const LoaderOptions& options);

  std::unique_ptr<Model> model_;
  at::ScalarType dtype_ = at::kFloat;
  // The data of the training, without samples.
  Dataset format_;
  InputConverter converter_;
  TargetScale target_scale_;
};

/// Loads the network of a checkpoint for predictions. `path` is the directory of a run
/// (its newest checkpoint) or of a checkpoint, or the path of its model.safetensors.
///
/// `weights` selects the model's weights or their moving averages (`--ema-decay`). If
/// the run trained your own module, pass the same module as `model`; its parameters and
/// buffers get the values of the checkpoint. A network file is read from the run's
/// directory (checkpoint/network_file.h). If the file is TorchScript, which runs code,
/// `trusts_scripts` must be true.
///
/// Computes the outputs of one sample, because the first evaluation may change the mode
/// of a module. Later calls only read the network. Throws the errors of
/// load_checkpoint_model().
[[nodiscard]] Predictor load_model(
    const std::string& path, std::unique_ptr<Model> model = nullptr,
    CheckpointWeights weights = CheckpointWeights::own, bool trusts_scripts = false);

}  // namespace tandem

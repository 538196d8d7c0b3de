#include "tandem/train/predictor.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>

#include <utility>

#include "tandem/base/error.h"
#include "tandem/train/assembly.h"
#include "tandem/train/checkpoint_model.h"

namespace tandem {

namespace {

// Throws ConfigError unless `batch` contains samples of a shape and is `described`.
void check_batch(
    const at::Tensor& batch, const InputShape& sample, bool fits,
    const char* described) {
  const std::vector<int64_t> sizes = {sample.channels, sample.height, sample.width};
  if (fits && batch.dim() == 4 && batch.sizes().slice(1) == at::IntArrayRef(sizes)) {
    return;
  }
  throw ConfigError(fmt::format(
      "[predict] the batch is {} of shape {}, expected {} of shape [samples, {}, {}, "
      "{}]; change the tensor",
      c10::toString(batch.scalar_type()), c10::str(batch.sizes()), described,
      sample.channels, sample.height, sample.width));
}

at::ScalarType dtype_of(const Model& model) {
  const auto parameters = model.parameters();
  return parameters.empty() ? at::kFloat : parameters.front().tensor.scalar_type();
}

}  // namespace

Predictor::Predictor(
    std::unique_ptr<Model> model, const InputShape& image, int64_t pad,
    const Normaliser& normalise, std::vector<std::string> class_names)
    : model_(std::move(model)),
      dtype_(dtype_of(*model_)),
      image_(image),
      pad_(pad),
      normalise_(normalise),
      class_names_(std::move(class_names)) {}

at::Tensor Predictor::operator()(const at::Tensor& inputs) const {
  const int64_t border = 2 * pad_;
  check_batch(
      inputs, {image_.channels, image_.height + border, image_.width + border},
      at::isFloatingType(inputs.scalar_type()), "floating point");
  const c10::AutoGradMode no_grad(false);
  ForwardContext evaluation;
  evaluation.training = false;
  return model_->forward(inputs.to(dtype_), evaluation);
}

at::Tensor Predictor::preprocess(const at::Tensor& images) const {
  check_batch(
      images, image_, images.scalar_type() == at::kByte && images.is_cpu(),
      "uint8 on the CPU");
  const at::Tensor pixels = images.contiguous();
  const auto inputs = at::empty(pixels.sizes(), at::kFloat);
  normalise_.row(pixels.data_ptr<uint8_t>(), pixels.numel(), inputs.data_ptr<float>());
  return pad_ == 0
             ? inputs
             : at::constant_pad_nd(inputs, {pad_, pad_, pad_, pad_}, normalise_(0));
}

Predictor load_model(
    const std::string& path, std::unique_ptr<Model> model, CheckpointWeights weights) {
  CheckpointModel loaded = load_checkpoint_model(path, "", weights, std::move(model));
  const LoaderOptions loading = loader_options(loaded.config);
  Predictor predictor(
      std::move(loaded.model), loaded.image, loading.pad,
      Normaliser(loading.mean, loading.std),
      class_names_of(loaded.description, loaded.num_classes));
  const InputShape& image = predictor.image_shape();
  predictor(predictor.preprocess(
      at::zeros({1, image.channels, image.height, image.width}, at::kByte)));
  return predictor;
}

}  // namespace tandem

#include "tandem/train/predictor.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <utility>

#include "tandem/base/error.h"
#include "tandem/train/assembly.h"
#include "tandem/train/checkpoint_model.h"

namespace tandem {

namespace {

at::ScalarType scalar_type_of(ElementType type) {
  return type == ElementType::uint8     ? at::kByte
         : type == ElementType::float32 ? at::kFloat
                                        : at::kLong;
}

// Throws ConfigError unless `batch` contains samples of a shape and is `described`.
void check_batch(
    const at::Tensor& batch, const std::vector<int64_t>& sample, bool fits,
    const std::string& described) {
  if (fits && batch.dim() > 0 && batch.sizes().slice(1) == at::IntArrayRef(sample)) {
    return;
  }
  throw ConfigError(fmt::format(
      "[predict] the batch is {} of shape {}, expected {} of shape [samples, {}]; "
      "change the tensor",
      c10::toString(batch.scalar_type()), c10::str(batch.sizes()), described,
      fmt::join(sample, ", ")));
}

at::ScalarType dtype_of(const Model& model) {
  const auto parameters = model.parameters();
  return parameters.empty() ? at::kFloat : parameters.front().tensor.scalar_type();
}

}  // namespace

Predictor::Predictor(
    std::unique_ptr<Model> model, Dataset format, const LoaderOptions& options)
    : model_(std::move(model)),
      dtype_(dtype_of(*model_)),
      format_(std::move(format)),
      converter_(format_, options),
      target_scale_(options.target_mean, options.target_std, format_) {}

at::Tensor Predictor::operator()(const at::Tensor& inputs) const {
  const bool is_index = format_.has_indices();
  check_batch(
      inputs, converter_.shape(),
      is_index ? inputs.scalar_type() == at::kLong
               : at::isFloatingType(inputs.scalar_type()),
      is_index ? "int64" : "floating point");
  const c10::AutoGradMode no_grad(false);
  ForwardContext evaluation;
  evaluation.training = false;
  return target_scale_.restore(
      model_->forward(is_index ? inputs : inputs.to(dtype_), evaluation));
}

at::Tensor Predictor::preprocess(const at::Tensor& samples) const {
  const ElementType type = format_.inputs.type;
  check_batch(
      samples, format_.inputs.shape,
      samples.scalar_type() == scalar_type_of(type) && samples.is_cpu(),
      std::string(name_of(type)) + " on the CPU");
  const at::Tensor numbers = samples.contiguous();
  const auto* from = static_cast<const uint8_t*>(numbers.data_ptr());
  const auto inputs = converter_.make_batch(samples.size(0), at::kCPU);
  for (int64_t i = 0; i < samples.size(0); ++i) {
    if (!converter_.convert(from, nullptr, inputs.data_ptr(), i)) {
      throw DataError(fmt::format(
          "[predict] sample {} of the batch has a number that is not finite, expected "
          "finite numbers; change the tensor",
          i));
    }
    from += format_.inputs.sample_bytes();
  }
  return inputs;
}

Predictor load_model(
    const std::string& path, std::unique_ptr<Model> model, CheckpointWeights weights,
    bool trusts_scripts) {
  CheckpointModel loaded =
      load_checkpoint_model(path, "", weights, std::move(model), trusts_scripts);
  const LoaderOptions loading = loader_options(loaded.config, loaded.format);
  Predictor predictor(std::move(loaded.model), std::move(loaded.format), loading);
  std::vector<int64_t> sizes = predictor.sample_shape();
  sizes.insert(sizes.begin(), 1);
  predictor(predictor.preprocess(
      at::zeros(sizes, scalar_type_of(predictor.format_.inputs.type))));
  return predictor;
}

}  // namespace tandem

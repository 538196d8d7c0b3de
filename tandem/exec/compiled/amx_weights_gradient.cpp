#include "tandem/exec/compiled/amx_weights_gradient.h"

#include <algorithm>

#include "tandem/core/parallel.h"
#include "tandem/exec/compiled/pointwise_kernels.h"
#include "tandem/kernels/isa.h"

namespace tandem {

namespace {

using dnnl::memory;

// Largest size of a group of laid-out images and their gradients, in bytes. A group
// must stay in the L2 cache, because every task reads it again. With 26 x 26 pixels, a
// 3 x 3 window, 32 input and 64 output channels, an image takes 168 KiB. A group is
// then four images, and there are 12 tasks.
constexpr int64_t kGroupBytes = 768 * 1024;

amx::ConvolutionShape shape_of(const Layer& layer, const OnednnDims& input_dims) {
  return {layer.in,      layer.out,    input_dims[2],
          input_dims[3], layer.kernel, layer.padding};
}

int64_t bytes_of(const amx::ConvolutionShape& shape) {
  return amx::image_bytes(shape) + amx::grad_bytes(shape);
}

}  // namespace

bool AmxWeightsGradient::fits(
    const Layer& layer, const OnednnDims& input_dims, const OnednnContext& context) {
  return context.product() == OnednnType::bf16 && has_amx() && layer.stride == 1 &&
         layer.in % 16 == 0 && layer.out % 16 == 0 &&
         bytes_of(shape_of(layer, input_dims)) <= kGroupBytes;
}

AmxWeightsGradient::AmxWeightsGradient(
    const Layer& layer, const memory& input, const memory& grad_output,
    const OnednnContext& context)
    : shape_(shape_of(layer, dims_of(input))),
      count_(dims_of(input)[0]),
      group_(std::min(count_, kGroupBytes / bytes_of(shape_))),
      input_(input),
      grad_output_(grad_output) {
  const auto bytes = [&](int64_t count) {
    return plain_memory({count}, context.engine, nullptr, OnednnType::u8);
  };
  images_ = bytes(group_ * amx::image_bytes(shape_));
  grads_ = bytes(group_ * amx::grad_bytes(shape_));
  sums_ = bytes(amx::sums_bytes(shape_));
  bias_grads_ = plain_memory({count_, shape_.out_channels}, context.engine);
}

void AmxWeightsGradient::lay_out(int64_t first, int64_t count) const {
  const int64_t in_size = shape_.height * shape_.width * shape_.in_channels;
  const int64_t out_size = elements_of(grad_output_) / count_;
  parallel_for_each(count, 1, [&](int64_t i) {
    amx::lay_out_image(
        shape_, data_of<Bf16>(input_) + (first + i) * in_size,
        data_of<char>(images_) + i * amx::image_bytes(shape_));
    amx::lay_out_grad(
        shape_, data_of<Bf16>(grad_output_) + (first + i) * out_size,
        data_of<char>(grads_) + i * amx::grad_bytes(shape_),
        data_of<float>(bias_grads_) + (first + i) * shape_.out_channels);
  });
}

void AmxWeightsGradient::run(
    bool accumulate, float* weight_grad, float* bias_grad) const {
  for (int64_t first = 0; first < count_; first += group_) {
    const int64_t count = std::min(group_, count_ - first);
    lay_out(first, count);
    parallel_for_each(amx::num_tasks(shape_), 1, [&](int64_t task) {
      amx::add_images(
          shape_, task, images_.get_data_handle(), grads_.get_data_handle(), count,
          first == 0, sums_.get_data_handle());
    });
  }
  amx::store_weight_grad(shape_, sums_.get_data_handle(), accumulate, weight_grad);
  add_rows(
      data_of<float>(bias_grads_), count_, shape_.out_channels, accumulate, bias_grad);
}

}  // namespace tandem

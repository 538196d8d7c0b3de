#include <algorithm>
#include <cstring>
#include <vector>

#include "tandem/core/bf16.h"
#include "tandem/core/parallel.h"
#include "tandem/exec/compiled/operation.h"
#include "tandem/exec/compiled/pointwise_kernels.h"
#include "tandem/kernels/isa.h"
#include "tandem/kernels/small_conv_loops.h"

namespace tandem {

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

// First convolution of a model, which reads few channels and computes no gradient of
// its input. Custom loops over float32 images apply bias, ReLU and conversion in the
// same pass.
class SmallConvolution : public OnednnOp {
 public:
  using OnednnOp::OnednnOp;

  memory plan_forward(const memory& input) override {
    const OnednnDims in = dims_of(input);
    images_ = in[0];
    plan_input(input, plain_desc(in));
    shape_.channels = in[1];
    shape_.height = in[2] + 2 * layer_.padding;
    shape_.width = in[3] + 2 * layer_.padding;
    shape_.kernel = layer_.kernel;
    shape_.out_channels = layer_.out;
    if (layer_.padding > 0) {
      padded_.resize(static_cast<size_t>(images_ * image_size()));
    }
    plan_lanes();
    output_ = make_value(
        {{images_, layer_.out, shape_.out_height(), shape_.out_width()},
         context_.product(),
         tag_});
    weights_.resize(static_cast<size_t>(shape_.taps() * layer_.out));
    sums_.resize(static_cast<size_t>(images_ * sums_size()));
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool) override {
    plan_grad_output(grad_output);
    return {};
  }

  void forward(const OnednnPass&) override {
    input_change_.run(stream());
    pad();
    transpose(tensors_.weight.data_ptr<float>(), layer_.out, weights_.data());
    with_type(output_, [&](auto type) { convolve<decltype(type)>(); });
  }

  void backward_parameters(bool accumulate) override {
    grad_change_.run(stream());
    with_type(output_, [&](auto type) { add_up<decltype(type)>(); });
    store(accumulate);
  }
  void backward_input() override {}

 private:
  int64_t image_size() const {
    return shape_.channels * shape_.height * shape_.width;
  }
  int64_t sums_size() const {
    return (shape_.taps() + 1) * layer_.out;
  }
  const float* images() const {
    return padded_.empty() ? data_of<float>(input_) : padded_.data();
  }

  // Chooses lanes as wide as the CPU's vectors, and the size of a block of channels
  // that suits the next layer. A vector of 4 lanes is half of a block of 8.
  void plan_lanes() {
    const bool by_16 = layer_.out % 16 == 0 && kernel_isa() == Isa::avx512;
    const int64_t block = by_16 ? 16 : 8;
    shape_.lanes = std::min<int64_t>(block, kernel_isa() < Isa::avx2 ? 4 : 16);
    const bool last = context_.product() == OnednnType::bf16;
    tag_ = last ? Tag::nhwc : by_16 ? Tag::nChw16c : Tag::nChw8c;
    shape_.pixel_stride = last ? layer_.out : block;
    for (int64_t c = 0; c < layer_.out; c += shape_.lanes) {
      const int64_t plane = shape_.out_height() * shape_.out_width() * block;
      groups_.push_back(last ? c : c / block * plane + c % block);
    }
    shape_.group_offsets = groups_.data();
  }

  // Copies the images into padded_, whose borders remain zero.
  void pad() {
    if (padded_.empty()) {
      return;
    }
    const int64_t height = shape_.height - 2 * layer_.padding;
    const int64_t width = shape_.width - 2 * layer_.padding;
    const float* from = data_of<float>(input_);
    for (int64_t plane = 0; plane < images_ * shape_.channels; ++plane) {
      for (int64_t y = 0; y < height; ++y) {
        const int64_t row = plane * shape_.height + y + layer_.padding;
        std::memcpy(
            padded_.data() + row * shape_.width + layer_.padding,
            from + (plane * height + y) * width,
            static_cast<size_t>(width) * sizeof(float));
      }
    }
  }

  // Transposes [out][taps] to [taps][out].
  void transpose(const float* weights, int64_t out, float* to) const {
    for (int64_t c = 0; c < out; ++c) {
      for (int64_t t = 0; t < shape_.taps(); ++t) {
        to[t * out + c] = weights[c * shape_.taps() + t];
      }
    }
  }

  template <typename T>
  void convolve() {
    void (*const one)(
        const SmallConvShape&, bool, const float*, const float*, const float*, T*) =
        TANDEM_FOR_ISA(decltype(one), small_conv);
    const int64_t out = elements_of(output_) / images_;
    parallel_for_each(images_, kGrain, [&](int64_t i) {
      one(shape_, relu_, images() + i * image_size(), weights_.data(),
          tensors_.bias.data_ptr<float>(), data_of<T>(output_) + i * out);
    });
  }

  template <typename T>
  void add_up() {
    void (*const one)(const SmallConvShape&, const float*, const T*, const T*, float*) =
        TANDEM_FOR_ISA(decltype(one), small_conv_gradient);
    const int64_t out = elements_of(output_) / images_;
    parallel_for_each(images_, kGrain, [&](int64_t i) {
      one(shape_, images() + i * image_size(),
          relu_ ? data_of<T>(output_) + i * out : nullptr,
          data_of<T>(grad_output_) + i * out, sums_.data() + i * sums_size());
    });
  }

  // Adds the sums of the images in order, so that the result does not depend on the
  // number of threads.
  void store(bool accumulate) {
    for (int64_t i = 1; i < images_; ++i) {
      store_gradient(sums_.data() + i * sums_size(), sums_size(), true, sums_.data());
    }
    const int64_t out = layer_.out;
    auto* weight_grad = tensors_.weight_grad.data_ptr<float>();
    for (int64_t c = 0; c < out; ++c) {
      for (int64_t t = 0; t < shape_.taps(); ++t) {
        float& grad = weight_grad[c * shape_.taps() + t];
        const float sum = sums_[static_cast<size_t>(t * out + c)];
        grad = accumulate ? grad + sum : sum;
      }
    }
    store_gradient(
        sums_.data() + shape_.taps() * out, out, accumulate,
        tensors_.bias_grad.data_ptr<float>());
  }

  // Smallest number of images per thread.
  static constexpr int64_t kGrain = 4;

  int64_t images_ = 0;
  SmallConvShape shape_;
  Tag tag_ = Tag::nhwc;
  std::vector<int64_t> groups_;
  // Images with their padding; empty if there is no padding.
  std::vector<float> padded_;
  std::vector<float> weights_;
  // Sums of the gradients of each image, [taps + 1][out]. The last row is the bias.
  std::vector<float> sums_;
};

}  // namespace

bool fits_small_convolution(const FusedLayer& fused) {
  const Layer& layer = fused.layer;
  const int64_t taps = layer.in * layer.kernel * layer.kernel;
  return fused.first && layer.stride == 1 && layer.out % 8 == 0 &&
         std::count(std::begin(kSmallConvTaps), std::end(kSmallConvTaps), taps) > 0;
}

std::unique_ptr<OnednnOp> make_onednn_small_convolution(
    const FusedLayer& fused, const LayerTensors& tensors,
    const OnednnContext& context) {
  return make_op<SmallConvolution>(fused, tensors, context);
}

}  // namespace tandem

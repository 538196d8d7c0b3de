#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tandem/core/parallel.h"
#include "tandem/exec/compiled/node_reader.h"
#include "tandem/exec/compiled/operation.h"
#include "tandem/exec/compiled/pointwise_kernels.h"
#include "tandem/graph/single_values.h"
#include "tandem/kernels/isa.h"
#include "tandem/kernels/norm_loops.h"

namespace tandem {

namespace {

using dnnl::memory;

// Smallest number of values per thread.
constexpr int64_t kGrain = 16'384;

// Batch normalization. Moments and sums are computed for each plane, then combined in
// the order of the images and in double precision, so that results do not depend on the
// number of threads. Equations: S. Ioffe, C. Szegedy, "Batch Normalization", 2015. The
// moments of planes are combined as in T. Chan, G. Golub, R. LeVeque, "Updating
// Formulae", 1979.
class BatchNorm : public OnednnOp {
 public:
  using OnednnOp::OnednnOp;

  memory plan_forward(const memory& input) override {
    const OnednnDims dims = dims_of(input);
    const auto [tag, lanes] = pixel_layout_for(input);
    plan_input(input, {dims, type_of(input), tag});
    output_ = make_value(input_.get_desc());
    images_ = dims[0];
    channels_ = dims[1];
    blocks_ = (channels_ + lanes - 1) / lanes;
    plane_ = {dims[2] * dims[3], lanes};
    // Channels that pad a block have a scale and a bias of 0.
    for (auto* values : {&mean_, &scale_, &bias_, &mean_grad_, &slope_}) {
      values->assign(static_cast<size_t>(blocks_ * lanes), 0);
    }
    deviation_.resize(static_cast<size_t>(channels_));
    weight_grad_.resize(deviation_.size());
    bias_grad_.resize(deviation_.size());
    for (auto* values : {&plane_sums_, &plane_products_}) {
      values->resize(static_cast<size_t>(images_ * blocks_ * lanes));
    }
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool wants_input_grad) override {
    plan_grad_output(grad_output);
    grad_input_ = wants_input_grad ? make_value(input_.get_desc()) : memory();
    return grad_input_;
  }

  void forward(const OnednnPass&) override {
    input_change_.run(stream());
    with_type(input_, [&](auto type) {
      using T = decltype(type);
      if (context_.training) {
        take_statistics<T>();
      } else {
        use_running_statistics();
      }
      normalise<T>();
    });
  }

  void backward_parameters(bool accumulate) override {
    grad_change_.run(stream());
    with_type(input_, [&](auto type) { sum_gradients<decltype(type)>(); });
    for (int64_t c = 0; c < channels_; ++c) {
      const auto i = static_cast<size_t>(c);
      double sum = 0;
      double product = 0;
      for (int64_t image = 0; image < images_; ++image) {
        sum += plane_sums_[at(image, c)];
        product += plane_products_[at(image, c)];
      }
      const double deviation = deviation_[i];
      weight_grad_[i] = static_cast<float>(product / deviation);
      bias_grad_[i] = static_cast<float>(sum);
      mean_grad_[i] = static_cast<float>(sum / count());
      slope_[i] = static_cast<float>(product / count() / (deviation * deviation));
    }
    if (!tensors_.is_trained()) {
      return;
    }
    store_gradient(
        weight_grad_.data(), channels_, accumulate,
        tensors_.weight_grad.data_ptr<float>());
    store_gradient(
        bias_grad_.data(), channels_, accumulate, tensors_.bias_grad.data_ptr<float>());
  }

  void backward_input() override {
    with_type(input_, [&](auto type) { spread_gradients<decltype(type)>(); });
  }

 private:
  double count() const {
    return static_cast<double>(images_ * plane_.pixels);
  }

  // Returns the index of the sums of a channel in an image. Each plane has sums for its
  // lanes.
  size_t at(int64_t image, int64_t channel) const {
    return static_cast<size_t>(image * blocks_ * plane_.lanes + channel);
  }

  // Calls body(offset of the values, offset of the sums, channels) for each plane.
  template <typename Body>
  void for_each_plane(const Body& body) const {
    const int64_t size = plane_.pixels * plane_.lanes;
    const int64_t grain = std::max<int64_t>(1, kGrain / size);
    parallel_for_each(images_ * blocks_, grain, [&](int64_t i) {
      const int64_t lane = i % blocks_ * plane_.lanes;
      body(
          i * size, i * plane_.lanes,
          NormChannels{
              mean_.data() + lane, scale_.data() + lane, bias_.data() + lane,
              mean_grad_.data() + lane, slope_.data() + lane});
    });
  }

  template <typename T>
  void take_statistics() {
    check_values_per_channel(images_ * plane_.pixels, layer_.name);
    void (*const moments)(const NormPlane&, const T*, float*, float*) =
        TANDEM_FOR_ISA(decltype(moments), norm_moments);
    for_each_plane([&](int64_t values, int64_t sums, const NormChannels&) {
      moments(
          plane_, data_of<T>(input_) + values, plane_sums_.data() + sums,
          plane_products_.data() + sums);
    });
    auto* running_mean = tensors_.running_mean.data_ptr<float>();
    auto* running_variance = tensors_.running_var.data_ptr<float>();
    // The running variance is unbiased, as in PyTorch.
    const double unbiased = 1 / std::max(1.0, count() - 1);
    for (int64_t c = 0; c < channels_; ++c) {
      const auto [mean, squares] = moments_of(c);
      set_channel(c, mean, squares / count());
      running_mean[c] = static_cast<float>(
          (1 - kBatchNormMomentum) * running_mean[c] + kBatchNormMomentum * mean);
      running_variance[c] = static_cast<float>(
          (1 - kBatchNormMomentum) * running_variance[c] +
          kBatchNormMomentum * squares * unbiased);
    }
    *tensors_.num_batches.data_ptr<int64_t>() += 1;
  }

  struct Moments {
    double mean = 0;
    // Sum of squared distances from the mean.
    double squares = 0;
  };

  Moments moments_of(int64_t channel) const {
    const auto pixels = static_cast<double>(plane_.pixels);
    Moments all;
    for (int64_t image = 0; image < images_; ++image) {
      const auto before = static_cast<double>(image) * pixels;
      const double distance = plane_sums_[at(image, channel)] - all.mean;
      all.mean += distance * pixels / (before + pixels);
      all.squares += plane_products_[at(image, channel)] +
                     distance * distance * before * pixels / (before + pixels);
    }
    return all;
  }

  void use_running_statistics() {
    const auto* mean = tensors_.running_mean.data_ptr<float>();
    const auto* variance = tensors_.running_var.data_ptr<float>();
    for (int64_t c = 0; c < channels_; ++c) {
      set_channel(c, mean[c], variance[c]);
    }
  }

  void set_channel(int64_t channel, double mean, double variance) {
    const auto i = static_cast<size_t>(channel);
    deviation_[i] = std::sqrt(variance + kBatchNormEpsilon);
    mean_[i] = static_cast<float>(mean);
    scale_[i] =
        static_cast<float>(tensors_.weight.data_ptr<float>()[channel] / deviation_[i]);
    bias_[i] = tensors_.bias.data_ptr<float>()[channel];
  }

  template <typename T>
  void normalise() const {
    void (*const loop)(const NormPlane&, const NormChannels&, bool, const T*, T*) =
        TANDEM_FOR_ISA(decltype(loop), norm_forward);
    for_each_plane([&](int64_t values, int64_t, const NormChannels& channels) {
      loop(
          plane_, channels, relu_, data_of<T>(input_) + values,
          data_of<T>(output_) + values);
    });
  }

  // Returns the plane's output, which masks the gradient; null without a ReLU.
  template <typename T>
  const T* cut_output(int64_t values) const {
    return relu_ ? data_of<T>(output_) + values : nullptr;
  }

  template <typename T>
  void sum_gradients() {
    void (*const sum)(
        const NormPlane&, const NormChannels&, const T*, const T*, const T*, float*,
        float*) = TANDEM_FOR_ISA(decltype(sum), norm_gradient_sums);
    for_each_plane([&](int64_t values, int64_t sums, const NormChannels& channels) {
      sum(plane_, channels, data_of<T>(input_) + values, cut_output<T>(values),
          data_of<T>(grad_output_) + values, plane_sums_.data() + sums,
          plane_products_.data() + sums);
    });
  }

  template <typename T>
  void spread_gradients() const {
    void (*const backward)(
        const NormPlane&, const NormChannels&, const T*, const T*, const T*, T*) =
        TANDEM_FOR_ISA(decltype(backward), norm_backward);
    for_each_plane([&](int64_t values, int64_t, const NormChannels& channels) {
      backward(
          plane_, channels, data_of<T>(input_) + values, cut_output<T>(values),
          data_of<T>(grad_output_) + values, data_of<T>(grad_input_) + values);
    });
  }

  int64_t images_ = 0;
  int64_t channels_ = 0;
  // Number of planes of an image.
  int64_t blocks_ = 0;
  NormPlane plane_;
  // Values of each channel, including the channels that pad a block.
  std::vector<float> mean_;
  std::vector<float> scale_;
  std::vector<float> bias_;
  std::vector<float> mean_grad_;
  std::vector<float> slope_;
  // Values of each channel, without padding.
  std::vector<double> deviation_;
  std::vector<float> weight_grad_;
  std::vector<float> bias_grad_;
  // Values of each lane of each plane. Forward: its mean, and its sum of squared
  // distances from the mean. Backward: its sum of the gradient, and its sum of the
  // gradient times (input - mean).
  std::vector<float> plane_sums_;
  std::vector<float> plane_products_;
};

// batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
// cudnn_enabled)
void read_batch_norm(NodeReader& reader) {
  const Value* weight = reader.state(1, "weight");
  reader.state(2, "bias");
  reader.state(3, "running_mean");
  reader.state(4, "running_var");
  reader.expect(reader.flag(5), "it is frozen");
  reader.expect(
      reader.number(6) == kBatchNormMomentum,
      fmt::format("its momentum is not {}", kBatchNormMomentum));
  reader.expect(
      reader.number(7) == kBatchNormEpsilon,
      fmt::format("its eps is not {}", kBatchNormEpsilon));
  reader.expect(reader.input_dimensions() == 4, "its input is not images");
  if (weight != nullptr) {
    reader.layer.in = reader.layer.out = weight->shape[0].fixed;
  }
}

}  // namespace

KernelRow kernel_row(KindTag<LayerKind::batch_norm2d> kind) {
  return {kind, {"aten::batch_norm"}, &make_op<BatchNorm>, &read_batch_norm};
}

}  // namespace tandem

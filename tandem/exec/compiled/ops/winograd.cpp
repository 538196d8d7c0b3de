#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "tandem/core/parallel.h"
#include "tandem/exec/compiled/operation.h"
#include "tandem/exec/compiled/pointwise_kernels.h"
#include "tandem/kernels/isa.h"
#include "tandem/kernels/winograd_loops.h"

namespace tandem {

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

// Returns the kernels for this CPU; null if there are none.
const WinogradKernels* winograd_kernels() {
#if defined(__x86_64__)
  return for_isa<const WinogradKernels*>(&avx512::winograd, &avx2::winograd, nullptr);
#elif defined(__aarch64__)
  return &neon::winograd;
#else
  return nullptr;
#endif
}

// Convolution by Winograd's algorithm. Threads divide the tiles among themselves, and
// each has its own scratch memory. The gradient is summed in parts, whose number
// depends only on the shape:
//
//   sums_   | part 0: weights (36 x in x out), bias (out) | part 1 | ...
class WinogradConvolution : public OnednnOp {
 public:
  using OnednnOp::OnednnOp;

  memory plan_forward(const memory& input) override {
    const OnednnDims in = dims_of(input);
    shape_ = {in[0],          layer_.in,  in[2],        in[3],
              layer_.padding, layer_.out, layer_.kernel};
    plan_input(input, blocked(in));
    output_ = make_value(
        blocked({in[0], shape_.out_channels, shape_.out_height(), shape_.out_width()}));
    threads_ = std::max(1, at::get_num_threads());
    scratch_ = floats(threads_ * kernels_.scratch(shape_));
    factors_ = floats(shape_.points());
    share_scratch();
    return output_;
  }

  memory plan_backward(const memory& grad_output, bool wants_input_grad) override {
    plan_grad_output(grad_output);
    const int64_t runs = runs_of(shape_);
    const int64_t parts = std::clamp(kMostSums / sums_size(), int64_t{1}, kMostParts);
    tiles_of_a_part_ = (runs + parts - 1) / parts * kernels_.tiles;
    parts_ = (shape_.tiles() + tiles_of_a_part_ - 1) / tiles_of_a_part_;
    sums_ = floats(parts_ * sums_size());
    back_scratch_ = floats(threads_ * kernels_.scratch(shape_));
    if (!wants_input_grad) {
      share_scratch();
      return {};
    }
    back_ = {
        shape_.images,
        shape_.out_channels,
        shape_.out_height(),
        shape_.out_width(),
        shape_.kernel - 1 - shape_.padding,
        shape_.in_channels,
        shape_.kernel};
    back_factors_ = floats(back_.points());
    grad_input_ = make_value(input_.get_desc());
    share_scratch();
    return grad_input_;
  }

  void forward(const OnednnPass& pass) override {
    input_change_.run(stream());
    if (std::exchange(version_, pass.parameters_version) != pass.parameters_version ||
        shares_scratch()) {
      back_is_stale_ = true;
      kernels_.weights(
          shape_, tensors_.weight.data_ptr<float>(), false, data_of<float>(factors_));
    }
    on_threads(shape_, scratch_, [&](int64_t first, int64_t last, float* scratch) {
      kernels_.convolve(
          shape_, first, last, data_of<float>(input_), data_of<float>(factors_),
          tensors_.bias.data_ptr<float>(), relu_, data_of<float>(output_), scratch);
    });
  }

  void backward_parameters(bool accumulate) override {
    grad_change_.run(stream());
    if (relu_) {
      rectify_gradient(
          data_of<float>(output_), elements_of(output_), data_of<float>(grad_output_));
    }
    if (!tensors_.is_trained()) {
      return;
    }
    add_up();
    float* sums = data_of<float>(sums_);
    kernels_.finish(shape_, sums, accumulate, tensors_.weight_grad.data_ptr<float>());
    store_gradient(
        sums + shape_.points(), shape_.out_channels, accumulate,
        tensors_.bias_grad.data_ptr<float>());
  }

  void backward_input() override {
    if (std::exchange(back_is_stale_, false)) {
      kernels_.weights(
          shape_, tensors_.weight.data_ptr<float>(), true,
          data_of<float>(back_factors_));
    }
    on_threads(back_, back_scratch_, [&](int64_t first, int64_t last, float* scratch) {
      kernels_.convolve(
          back_, first, last, data_of<float>(grad_output_),
          data_of<float>(back_factors_), nullptr, false, data_of<float>(grad_input_),
          scratch);
    });
  }

 private:
  memory::desc blocked(const OnednnDims& dims) const {
    return {dims, OnednnType::f32, kernels_.block == 16 ? Tag::nChw16c : Tag::nChw8c};
  }
  memory floats(int64_t count) {
    return make_scratch(plain_desc({count}));
  }
  int64_t sums_size() const {
    return shape_.points() + shape_.out_channels;
  }

  int64_t runs_of(const WinogradShape& shape) const {
    return (shape.tiles() + kernels_.tiles - 1) / kernels_.tiles;
  }
  float* scratch_of(const memory& scratch, int64_t thread) const {
    return data_of<float>(scratch) + thread * kernels_.scratch(shape_);
  }

  // Calls body(first tile, end of tiles, scratch) for each thread.
  template <typename Body>
  void on_threads(
      const WinogradShape& shape, const memory& scratch, const Body& body) const {
    const int64_t length = (runs_of(shape) + threads_ - 1) / threads_ * kernels_.tiles;
    parallel_for_each(threads_, 1, [&](int64_t thread) {
      body(
          std::min(shape.tiles(), thread * length),
          std::min(shape.tiles(), (thread + 1) * length), scratch_of(scratch, thread));
    });
  }

  // Computes the gradient of each part, then adds the parts in order to the first part,
  // so that the result does not depend on the number of threads.
  void add_up() {
    float* sums = data_of<float>(sums_);
    parallel_for_each(threads_, 1, [&](int64_t thread) {
      for (int64_t part = thread * parts_ / threads_;
           part < (thread + 1) * parts_ / threads_; ++part) {
        float* own = sums + part * sums_size();
        std::fill_n(own, sums_size(), 0.0F);
        kernels_.gradient(
            shape_, part * tiles_of_a_part_,
            std::min(shape_.tiles(), (part + 1) * tiles_of_a_part_),
            data_of<float>(input_), data_of<float>(grad_output_), own,
            own + shape_.points(), scratch_of(back_scratch_, thread));
      }
    });
    parallel_for(0, sums_size(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t part = 1; part < parts_; ++part) {
        store_gradient(
            sums + part * sums_size() + begin, end - begin, true, sums + begin);
      }
    });
  }

  // Largest number of parts, and so of threads that compute them.
  static constexpr int64_t kMostParts = 8;
  // Most sums of all parts: 32 MiB.
  static constexpr int64_t kMostSums = int64_t{1} << 23;
  // Smallest number of sums per thread.
  static constexpr int64_t kGrain = 16'384;

  const WinogradKernels& kernels_ = *winograd_kernels();
  WinogradShape shape_;
  // Shape of the convolution that computes the input's gradient from the output's
  // gradient.
  WinogradShape back_;
  int64_t threads_ = 1;
  // Number of parts of the gradient.
  int64_t parts_ = 1;
  int64_t tiles_of_a_part_ = 0;
  int64_t version_ = -1;
  // True if back_factors_ are those of older weights.
  bool back_is_stale_ = true;
  memory factors_;
  memory back_factors_;
  memory sums_;
  // Scratch memory of the threads in forward, and in backward.
  memory scratch_;
  memory back_scratch_;
};

}  // namespace

bool fits_winograd(
    const FusedLayer& fused, const OnednnContext& context, int64_t tiles) {
  // Largest number of input channels times output channels for each tile. Every run of
  // tiles reads the transformed weights, and fewer tiles do not pay for the transform.
  constexpr int64_t kMostWeights = 8192;
  const Layer& layer = fused.layer;
  const WinogradKernels* const kernels = winograd_kernels();
  // The transforms of a 5 x 5 window take more time, which few channels do not
  // compensate. On AVX2, the algorithm was faster with 16 input and 32 output channels,
  // and slower with 8 and 16. NEON uses the same rule as AVX2.
  const bool large = layer.kernel == 5 && kernel_isa() != Isa::avx512 &&
                     layer.in >= 16 && layer.out >= 16;
  return kernels != nullptr && context.product() == OnednnType::f32 &&
         (layer.kernel == 3 || large) && layer.stride == 1 &&
         layer.padding < layer.kernel && layer.in % kernels->block == 0 &&
         layer.out % kernels->block == 0 &&
         layer.in * layer.out <= kMostWeights * tiles;
}

std::unique_ptr<OnednnOp> make_onednn_winograd(
    const FusedLayer& fused, const LayerTensors& tensors,
    const OnednnContext& context) {
  return make_op<WinogradConvolution>(fused, tensors, context);
}

}  // namespace tandem

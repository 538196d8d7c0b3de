// Kernels with AMX tiles against double precision on the same rounded values. Products
// of two bfloat16 numbers are exact in float32, so only the order of sums differs.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <c10/util/accumulate.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tandem/exec/compiled/onednn_library.h"
#include "tandem/exec/compiled/operation.h"
#include "tandem/kernels/amx_convolution.h"
#include "tandem/kernels/amx_linear.h"
#include "tandem/kernels/isa.h"
#include "tests/exec/threads.h"

namespace tandem::amx_test {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// Tolerance relative to the sum of the products' magnitudes, for float32 sums in any
// order.
constexpr double kTolerance = 1e-6;

class Amx : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_amx()) {
      GTEST_SKIP()
          << "no AMX here, or ONEDNN_MAX_CPU_ISA forbids it; scripts/test on a CPU "
             "that has it";
    }
  }
};

// Returns different numbers below 1, in rows, with NaN in the memory after them.
at::Tensor numbers(std::vector<int64_t> dims, double step, at::ScalarType type) {
  const int64_t count = c10::multiply_integers(dims);
  const auto all = at::full({count + 64}, kNan, at::kDouble);
  all.narrow(0, 0, count).copy_((at::arange(count, at::kDouble) * step).sin());
  return all.to(type).narrow(0, 0, count).view(dims);
}

at::Tensor rounded(const at::Tensor& x) {
  return x.to(at::kBFloat16).to(at::kDouble);
}

// Returns memory for a result, filled with NaN.
at::Tensor result(std::vector<int64_t> dims, at::ScalarType type = at::kFloat) {
  return at::full(dims, kNan, type);
}

const Bf16* bf16(const at::Tensor& x) {
  return static_cast<const Bf16*>(x.data_ptr());
}

at::Tensor scratch(int64_t bytes) {
  // LibTorch's memory is 64-byte aligned.
  return at::empty({bytes}, at::kByte);
}

void expect_sums(
    const at::Tensor& found, const at::Tensor& expected, const at::Tensor& magnitude,
    const std::string& what) {
  const auto wrong =
      ((found.to(at::kDouble) - expected).abs() <= kTolerance * magnitude + 1e-30)
          .logical_not();
  EXPECT_EQ(wrong.sum().item<int64_t>(), 0)
      << what << ": " << found.to(at::kDouble).masked_select(wrong)[0].item<double>()
      << " for " << expected.masked_select(wrong)[0].item<double>();
}

struct LinearCase {
  amx::LinearShape shape;
  at::Tensor x = numbers({shape.count, shape.in}, 0.37, at::kBFloat16);
  at::Tensor weight = numbers({shape.out, shape.in}, 0.73, at::kFloat);
  at::Tensor bias = numbers({shape.out}, 1.7, at::kFloat);
  at::Tensor grad = numbers({shape.count, shape.out}, 1.1, at::kFloat);
  at::Tensor rounded_grad = scratch(amx::rounded_grad_bytes(shape));

  explicit LinearCase(const amx::LinearShape& of) : shape(of) {
    amx::round_grad(shape, grad.data_ptr<float>(), rounded_grad.data_ptr());
  }

  std::string name() const {
    return std::to_string(shape.count) + " x " + std::to_string(shape.in) + " -> " +
           std::to_string(shape.out);
  }

  // Computes parts of `length`.
  template <typename Body>
  static void in_parts(int64_t total, int64_t length, const Body& body) {
    for (int64_t begin = 0; begin < total; begin += length) {
      body(amx::Range{begin, std::min(total, begin + length)});
    }
  }

  at::Tensor forward(bool relu, int64_t part) const {
    auto y = result({shape.count, shape.out});
    in_parts(shape.out, part, [&](amx::Range outputs) {
      const auto memory = scratch(amx::forward_scratch(shape, outputs));
      amx::linear_forward(
          shape, outputs, bf16(x), weight.data_ptr<float>(), bias.data_ptr<float>(),
          relu, y.data_ptr<float>(), memory.data_ptr());
    });
    return y;
  }

  template <typename T>
  at::Tensor backward_input(at::ScalarType type, int64_t part) const {
    auto grad_x = result({shape.count, shape.in}, type);
    const auto memory = scratch(amx::backward_scratch(shape));
    in_parts(shape.in, part, [&](amx::Range inputs) {
      amx::linear_backward_input(
          shape, inputs, rounded_grad.data_ptr(), weight.data_ptr<float>(),
          static_cast<T*>(grad_x.data_ptr()), memory.data_ptr());
    });
    return grad_x;
  }

  void backward_weight(bool accumulate, int64_t part, at::Tensor& to) const {
    const auto memory = scratch(amx::backward_scratch(shape));
    in_parts(shape.in, part, [&](amx::Range inputs) {
      amx::linear_backward_weight(
          shape, inputs, rounded_grad.data_ptr(), bf16(x), accumulate,
          to.data_ptr<float>(), memory.data_ptr());
    });
  }
};

class AmxLinear : public Amx {
 protected:
  static void check(const LinearCase& c) {
    const auto x = c.x.to(at::kDouble);
    const auto weight = rounded(c.weight);
    const auto grad = rounded(c.grad);
    const auto sums = at::matmul(x, weight.t());
    const auto bias = c.bias.to(at::kDouble);
    const auto size = at::matmul(x.abs(), weight.abs().t()) + bias.abs();
    expect_sums(c.forward(false, c.shape.out), sums + bias, size, c.name() + " y");
    expect_sums(
        c.forward(true, c.shape.out), (sums + bias).clamp_min(0), size,
        c.name() + " ReLU");
    const auto grad_x = c.backward_input<float>(at::kFloat, c.shape.in);
    expect_sums(
        grad_x, at::matmul(grad, weight), at::matmul(grad.abs(), weight.abs()),
        c.name() + " grad x");
    EXPECT_TRUE(c.backward_input<Bf16>(at::kBFloat16, c.shape.in)
                    .equal(grad_x.to(at::kBFloat16)))
        << c.name();
    const auto expected = at::matmul(grad.t(), x);
    const auto grad_size = at::matmul(grad.abs().t(), x.abs());
    auto grad_weight = result({c.shape.out, c.shape.in});
    c.backward_weight(false, c.shape.in, grad_weight);
    expect_sums(grad_weight, expected, grad_size, c.name() + " grad weight");
    c.backward_weight(true, c.shape.in, grad_weight);
    expect_sums(grad_weight, 2 * expected, 2 * grad_size, c.name() + " twice");
  }
};

TEST_F(AmxLinear, EqualsDoublePrecisionForAnySizes) {
  for (const int64_t count : {1, 7, 64, 65}) {
    for (const int64_t in : {5, 32, 33, 784}) {
      for (const int64_t out : {1, 10, 16, 128, 130}) {
        check(LinearCase({count, in, out}));
      }
    }
  }
  for (const auto& shape :
       {amx::LinearShape{64, 9216, 128},
        {7, 9216, 10},
        {1000, 300, 40},
        {33, 70, 2100}}) {
    check(LinearCase(shape));
  }
}

TEST_F(AmxLinear, PartsEqualTheWhole) {
  const LinearCase c({65, 1100, 200});
  for (const int64_t part : {amx::kLinearGrain, 2 * amx::kLinearGrain}) {
    EXPECT_TRUE(c.forward(false, part).equal(c.forward(false, 200)));
    EXPECT_TRUE(c.backward_input<float>(at::kFloat, part)
                    .equal(c.backward_input<float>(at::kFloat, 1100)));
    auto parts = result({200, 1100});
    auto whole = result({200, 1100});
    c.backward_weight(false, part, parts);
    c.backward_weight(false, 1100, whole);
    EXPECT_TRUE(parts.equal(whole));
  }
}

TEST_F(AmxLinear, ReluKeepsNan) {
  const LinearCase c({3, 40, 20});
  c.bias[7] = kNan;
  const auto y = c.forward(true, 20);
  EXPECT_TRUE(std::isnan(y[2][7].item<double>()));
  EXPECT_EQ(y.isnan().sum().item<int64_t>(), 3);
}

struct ConvolutionCase {
  const char* name;
  int64_t count;
  amx::ConvolutionShape shape;

  std::vector<int64_t> out_dims() const {
    const int64_t less = shape.kernel - 1 - 2 * shape.padding;
    return {count, shape.height - less, shape.width - less, shape.out_channels};
  }
  at::Tensor images() const {
    return numbers(
        {count, shape.height, shape.width, shape.in_channels}, 0.37, at::kBFloat16);
  }
  at::Tensor grads() const {
    return numbers(out_dims(), 0.73, at::kBFloat16);
  }
};

class AmxConvolution : public Amx {
 protected:
  // Lays out and adds images in groups. `bias_grad`: [image x channel].
  static void run(
      const ConvolutionCase& c, int64_t group, bool accumulate, at::Tensor& grad,
      at::Tensor& bias_grad) {
    const auto& s = c.shape;
    const auto images = c.images();
    const auto grads = c.grads();
    const auto sums = scratch(amx::sums_bytes(s));
    bias_grad = result({c.count, s.out_channels});
    for (int64_t first = 0; first < c.count; first += group) {
      const int64_t count = std::min(group, c.count - first);
      const auto laid_out = scratch(count * amx::image_bytes(s));
      const auto laid_out_grads = scratch(count * amx::grad_bytes(s));
      for (int64_t i = 0; i < count; ++i) {
        amx::lay_out_image(
            s, bf16(images) + (first + i) * images[0].numel(),
            laid_out.data_ptr<uint8_t>() + i * amx::image_bytes(s));
        amx::lay_out_grad(
            s, bf16(grads) + (first + i) * grads[0].numel(),
            laid_out_grads.data_ptr<uint8_t>() + i * amx::grad_bytes(s),
            bias_grad.data_ptr<float>() + (first + i) * s.out_channels);
      }
      for (int64_t task = 0; task < amx::num_tasks(s); ++task) {
        amx::add_images(
            s, task, laid_out.data_ptr(), laid_out_grads.data_ptr(), count, first == 0,
            sums.data_ptr());
      }
    }
    amx::store_weight_grad(s, sums.data_ptr(), accumulate, grad.data_ptr<float>());
  }

  // Convolves images with gradients, with images and channels exchanged.
  static at::Tensor reference(
      const ConvolutionCase& c, const at::Tensor& images, const at::Tensor& grads) {
    return at::conv2d(
               images.to(at::kDouble).permute({3, 0, 1, 2}),
               grads.to(at::kDouble).permute({3, 0, 1, 2}), {}, 1, c.shape.padding)
        .transpose(0, 1);
  }
};

const ConvolutionCase kConvolutions[] = {
    {"net", 3, {32, 64, 26, 26, 3, 0}},
    {"odd width", 2, {16, 16, 5, 7, 3, 0}},
    {"one image, 48 channels", 1, {48, 48, 9, 11, 3, 0}},
    {"5x5", 3, {48, 64, 8, 13, 5, 0}},
    {"padded 5x5", 3, {16, 32, 14, 14, 5, 2}},
    {"1x1", 2, {64, 16, 6, 5, 1, 0}},
    {"2x2, padded beyond its half", 3, {32, 48, 12, 9, 2, 1}},
    {"7x7", 1, {16, 16, 9, 9, 7, 3}},
    {"one output", 2, {16, 32, 3, 3, 3, 0}},
};

TEST_F(AmxConvolution, EqualsDoublePrecision) {
  for (const auto& c : kConvolutions) {
    const auto expected = reference(c, c.images(), c.grads());
    const auto size = reference(c, c.images().abs(), c.grads().abs());
    auto grad = result(expected.sizes().vec());
    at::Tensor bias_grad;
    run(c, 2, false, grad, bias_grad);
    expect_sums(grad, expected, size, c.name);
    run(c, 2, true, grad, bias_grad);
    expect_sums(grad, 2 * expected, 2 * size, std::string(c.name) + ", twice");
    const auto grads = c.grads().to(at::kDouble);
    expect_sums(
        bias_grad, grads.sum({1, 2}), grads.abs().sum({1, 2}),
        std::string(c.name) + ", bias");
  }
}

TEST_F(AmxConvolution, ResultsDoNotDependOnGroups) {
  const ConvolutionCase& c = kConvolutions[0];
  auto one = result({64, 32, 3, 3});
  auto all = result({64, 32, 3, 3});
  at::Tensor bias_grad;
  run(c, 1, false, one, bias_grad);
  run(c, 3, false, all, bias_grad);
  EXPECT_TRUE(one.equal(all));
}

// A layer with its tensors, its input and the gradient of its output.
class LoneOp {
 public:
  LoneOp(
      const Layer& layer, const std::vector<int64_t>& weight_dims,
      const std::vector<int64_t>& in_dims)
      : tensors_{
            {numbers(weight_dims, 0.3, at::kFloat),
             numbers({weight_dims[0]}, 0.7, at::kFloat),
             {},
             {},
             {}},
            result(weight_dims),
            result({weight_dims[0]})} {
    EXPECT_EQ(onednn_obstacle(), "");
    OnednnContext context;
    context.engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
    context.stream = dnnl::stream(context.engine);
    context.numerics.product = at::kBFloat16;
    op_ = make_onednn_op({layer, false}, tensors_, context);
    const auto x = numbers(in_dims, 0.37, at::kFloat);
    const auto input = plain_over(x, context.engine);
    const auto output = op_->plan_forward(input);
    const auto grad = numbers(dims_of(output), 0.9, at::kFloat);
    grad_input_ = op_->plan_backward(plain_over(grad, context.engine), true);
    op_->forward({});
    op_->backward_parameters(false);
    op_->backward_input();
  }

  const LayerTensors& tensors() const {
    return tensors_;
  }
  std::vector<uint8_t> grad_input() const {
    const auto* data = data_of<uint8_t>(grad_input_);
    return {data, data + grad_input_.get_desc().get_size()};
  }

 private:
  LayerTensors tensors_;
  std::unique_ptr<OnednnOp> op_;
  dnnl::memory grad_input_;
};

LoneOp with_threads(int count, bool convolution) {
  const Threads threads(count);
  if (convolution) {
    return {conv2d("c", 32, 64, 3), {64, 32, 3, 3}, {9, 32, 26, 26}};
  }
  return {linear("l", 1500, 200), {200, 1500}, {50, 1500}};
}

TEST_F(Amx, GradientsDoNotDependOnThreads) {
  for (const bool convolution : {false, true}) {
    const LoneOp one = with_threads(1, convolution);
    const LoneOp three = with_threads(3, convolution);
    EXPECT_TRUE(three.tensors().weight_grad.equal(one.tensors().weight_grad));
    EXPECT_TRUE(three.tensors().bias_grad.equal(one.tensors().bias_grad));
    // oneDNN computes a convolution's input gradient.
    EXPECT_TRUE(convolution || three.grad_input() == one.grad_input());
  }
}

}  // namespace tandem::amx_test

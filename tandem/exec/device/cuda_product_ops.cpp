#include <vector>

#include "tandem/exec/device/cuda_op_parts.h"
#include "tandem/kernels/cuda/convolution.h"
#include "tandem/kernels/cuda/linear.h"
#include "tandem/kernels/cuda/pool.h"

namespace tandem {

namespace {

template <typename T>
cuda::ParameterGradients<T> gradients_of(const LayerTensors& tensors, bool accumulate) {
  return {data<T>(tensors.weight_grad), data<T>(tensors.bias_grad), accumulate};
}

// What layers of products with weights have in common.
class ProductOp : public OwnOutput {
 protected:
  ProductOp(const BoundLayer& layer, cuda::Products products)
      : fused_(layer.fused), tensors_(layer.tensors), products_(products) {}

  // What a forward with ReLU wrote; undefined without.
  at::Tensor behind_relu() const {
    return fused_.relu ? output_ : at::Tensor();
  }

  FusedLayer fused_;
  LayerTensors tensors_;
  cuda::Products products_;
};

template <typename T>
class ConvolutionOp : public ProductOp {
 public:
  ConvolutionOp(const BoundLayer& layer, cuda::Products products)
      : ProductOp(layer, products) {}

  at::Tensor plan_forward(const at::Tensor& input) override {
    const Layer& layer = fused_.layer;
    check_images(layer.name, input);
    check_input(layer.name, "channels", input.size(1), layer.in);
    shape_ = {input.size(0), layer.in,     layer.out,    input.size(2),
              input.size(3), layer.kernel, layer.padding};
    cuda::check_convolution(shape_);
    input_ = input;
    output_ = empty_as(input, output_sizes());
    return output_;
  }

  cuda::WorkspaceSize workspace() const override {
    return in_bytes(cuda::convolution_workspace(shape_), sizeof(T));
  }

  void forward(const CudaPass& pass) override {
    cuda::convolution(
        shape_, products_, data<const T>(input_), data<const T>(tensors_.weight),
        data<const T>(tensors_.bias), fused_.relu, data<T>(output_), pass.stream);
  }

  void backward(const CudaPass& pass, bool accumulate) override {
    backward_of(pass, grad_output_, behind_relu(), accumulate);
  }

 protected:
  virtual std::vector<int64_t> output_sizes() const {
    return {
        shape_.images, shape_.out_channels, shape_.out_height(), shape_.out_width()};
  }

  // `output`: as of convolution_backward().
  void backward_of(
      const CudaPass& pass, const at::Tensor& grad_output, const at::Tensor& output,
      bool accumulate) const {
    cuda::convolution_backward<T>(
        shape_, products_, data<const T>(input_), data<const T>(tensors_.weight),
        data<const T>(grad_output), data<const T>(output), workspace_of<T>(pass),
        gradients_of<T>(tensors_, accumulate), data<T>(grad_input_), pass.stream);
  }

  cuda::ConvolutionShape shape_;
};

// Its own output is never written, and backward begins with that output's gradient.
template <typename T>
class ConvolutionAndPoolOp : public ConvolutionOp<T> {
 public:
  ConvolutionAndPoolOp(const BoundLayer& layer, cuda::Products products, bool training)
      : ConvolutionOp<T>(layer, products), training_(training) {}

  at::Tensor plan_forward(const at::Tensor& input) override {
    auto output = ConvolutionOp<T>::plan_forward(input);
    cuda::check_pool(pool());
    if (training_) {
      largest_ = at::empty(output.sizes(), output.options().dtype(at::kByte));
    }
    return output;
  }

  at::Tensor plan_backward(
      const at::Tensor& grad_output, bool wants_input_grad) override {
    grad_images_ = empty_as(grad_output, ConvolutionOp<T>::output_sizes());
    return ConvolutionOp<T>::plan_backward(grad_output, wants_input_grad);
  }

  void forward(const CudaPass& pass) override {
    cuda::convolution_and_pool(
        this->shape_, this->products_, data<const T>(this->input_),
        data<const T>(this->tensors_.weight), data<const T>(this->tensors_.bias),
        behind(this->fused_, pass), data<T>(this->output_), data<uint8_t>(largest_),
        pass.stream);
  }

  void backward(const CudaPass& pass, bool accumulate) override {
    cuda::max_pool_backward(
        pool(), data<const uint8_t>(largest_), behind(this->fused_, pass).scale(),
        data<const T>(this->grad_output_), data<T>(grad_images_), pass.stream);
    this->backward_of(pass, grad_images_, {}, accumulate);
  }

 private:
  std::vector<int64_t> output_sizes() const override {
    const auto of = pool();
    return {of.images, of.channels, of.height / 2, of.width / 2};
  }

  cuda::PoolShape pool() const {
    const auto& of = this->shape_;
    return {of.images, of.out_channels, of.out_height(), of.out_width()};
  }

  bool training_;
  at::Tensor largest_;
  at::Tensor grad_images_;
};

template <typename T>
class LinearOp : public ProductOp {
 public:
  LinearOp(const BoundLayer& layer, cuda::Products products)
      : ProductOp(layer, products) {}

  at::Tensor plan_forward(const at::Tensor& input) override {
    const Layer& layer = fused_.layer;
    check_input(layer.name, "dimensions", input.dim(), 2);
    check_input(layer.name, "values of a sample", input.size(1), layer.in);
    shape_ = {input.size(0), layer.in, layer.out};
    cuda::check_linear(shape_);
    input_ = input;
    output_ = empty_as(input, {shape_.samples, shape_.out});
    return output_;
  }

  cuda::WorkspaceSize workspace() const override {
    return in_bytes(cuda::linear_workspace(shape_), sizeof(T));
  }

  void forward(const CudaPass& pass) override {
    cuda::linear(
        shape_, products_, data<const T>(input_), data<const T>(tensors_.weight),
        data<const T>(tensors_.bias), behind(fused_, pass), workspace_of<T>(pass),
        data<T>(output_), pass.stream);
  }

  void backward(const CudaPass& pass, bool accumulate) override {
    const cuda::LinearGradient<T> gradient{
        data<const T>(grad_output_), data<const T>(behind_relu()),
        behind(fused_, pass).scale()};
    cuda::linear_backward(
        shape_, products_, data<const T>(input_), data<const T>(tensors_.weight),
        gradient, workspace_of<T>(pass), gradients_of<T>(tensors_, accumulate),
        data<T>(grad_input_), pass.stream);
  }

 private:
  cuda::LinearShape shape_;
};

template <typename T>
std::unique_ptr<CudaOp> make_convolution(
    const BoundLayer& layer, cuda::Products products, bool training) {
  if (layer.fused.pool) {
    return std::make_unique<ConvolutionAndPoolOp<T>>(layer, products, training);
  }
  return std::make_unique<ConvolutionOp<T>>(layer, products);
}

}  // namespace

std::unique_ptr<CudaOp> make_cuda_convolution(
    const BoundLayer& layer, at::ScalarType dtype, cuda::Products products,
    bool training) {
  if (dtype == at::kDouble) {
    return make_convolution<double>(layer, products, training);
  }
  return make_convolution<float>(layer, products, training);
}

std::unique_ptr<CudaOp> make_cuda_linear(
    const BoundLayer& layer, at::ScalarType dtype, cuda::Products products) {
  if (dtype == at::kDouble) {
    return std::make_unique<LinearOp<double>>(layer, products);
  }
  return std::make_unique<LinearOp<float>>(layer, products);
}

}  // namespace tandem

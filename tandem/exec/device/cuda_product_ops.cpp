#include "tandem/exec/device/cuda_op_parts.h"
#include "tandem/kernels/cuda/convolution.h"
#include "tandem/kernels/cuda/linear.h"

namespace tandem {

namespace {

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
    output_ = empty_as(
        input, {shape_.images, layer.out, shape_.out_height(), shape_.out_width()});
    return output_;
  }

  int64_t workspace_bytes() const override {
    return cuda::convolution_workspace(shape_) * static_cast<int64_t>(sizeof(T));
  }

  void forward(const CudaPass& pass) override {
    cuda::convolution(
        shape_, products_, data<const T>(input_), data<const T>(tensors_.weight),
        data<const T>(tensors_.bias), fused_.relu, data<T>(output_), pass.stream);
  }

  void backward_parameters(const CudaPass& pass, bool accumulate) override {
    cuda::convolution_backward_weights(
        shape_, products_, data<const T>(input_), data<const T>(grad_output_),
        data<const T>(behind_relu()), accumulate, static_cast<T*>(pass.workspace),
        data<T>(tensors_.weight_grad), data<T>(tensors_.bias_grad), pass.stream);
  }

  void backward_input(const CudaPass& pass) override {
    cuda::convolution_backward_data(
        shape_, products_, data<const T>(grad_output_), data<const T>(behind_relu()),
        data<const T>(tensors_.weight), data<T>(grad_input_), pass.stream);
  }

 private:
  cuda::ConvolutionShape shape_;
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

  int64_t workspace_bytes() const override {
    return cuda::linear_workspace(shape_) * static_cast<int64_t>(sizeof(T));
  }

  void forward(const CudaPass& pass) override {
    cuda::linear(
        shape_, products_, data<const T>(input_), data<const T>(tensors_.weight),
        data<const T>(tensors_.bias), behind(fused_, pass),
        static_cast<T*>(pass.workspace), data<T>(output_), pass.stream);
  }

  void backward_parameters(const CudaPass& pass, bool accumulate) override {
    cuda::linear_backward_weights(
        shape_, products_, data<const T>(input_), data<const T>(grad_output_),
        data<const T>(behind_relu()), behind(fused_, pass).scale(), accumulate,
        data<T>(tensors_.weight_grad), data<T>(tensors_.bias_grad), pass.stream);
  }

  void backward_input(const CudaPass& pass) override {
    cuda::linear_backward_data(
        shape_, products_, data<const T>(grad_output_), data<const T>(behind_relu()),
        behind(fused_, pass).scale(), data<const T>(tensors_.weight),
        static_cast<T*>(pass.workspace), data<T>(grad_input_), pass.stream);
  }

 private:
  cuda::LinearShape shape_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_convolution(
    const BoundLayer& layer, at::ScalarType dtype, cuda::Products products) {
  if (dtype == at::kDouble) {
    return std::make_unique<ConvolutionOp<double>>(layer, products);
  }
  return std::make_unique<ConvolutionOp<float>>(layer, products);
}

std::unique_ptr<CudaOp> make_cuda_linear(
    const BoundLayer& layer, at::ScalarType dtype, cuda::Products products) {
  if (dtype == at::kDouble) {
    return std::make_unique<LinearOp<double>>(layer, products);
  }
  return std::make_unique<LinearOp<float>>(layer, products);
}

}  // namespace tandem

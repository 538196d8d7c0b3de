#pragma once

#include <torch/nn.h>

namespace tandem {

/// A network for images of 3 channels with a skip connection, batch norm and 10
/// outputs.
struct ResidualImpl : torch::nn::Module {
  ResidualImpl() {
    conv1 = register_module(
        "conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)));
    bn1 = register_module("bn1", torch::nn::BatchNorm2d(4));
    conv2 = register_module(
        "conv2",
        torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).padding(1).bias(false)));
    bn2 = register_module("bn2", torch::nn::BatchNorm2d(4));
    fc = register_module("fc", torch::nn::Linear(4, 10));
  }
  at::Tensor forward(const at::Tensor& image) {
    const auto x = torch::relu(bn1(conv1(image)));
    const auto y = torch::relu(bn2(conv2(x)) + x);
    return fc(torch::adaptive_avg_pool2d(y, {1, 1}).view({image.size(0), -1}));
  }
  torch::nn::Conv2d conv1{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr};
  torch::nn::Conv2d conv2{nullptr};
  torch::nn::BatchNorm2d bn2{nullptr};
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(Residual);

}  // namespace tandem

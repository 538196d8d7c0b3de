// A LibTorch training loop whose network tandem compiles, in the lines marked (1) and
// (2), or whose blocks backward computes again, in the line marked (3).
//
//   ./compiled_loop [eager|compiled|checkpoint] [STEPS]

#include <tandem/tandem.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// Two convolutions with batch norm and a skip connection.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t channels) {
    const auto conv = [&] {
      return torch::nn::Conv2d(
          torch::nn::Conv2dOptions(channels, channels, 3).padding(1).bias(false));
    };
    conv1 = register_module("conv1", conv());
    conv2 = register_module("conv2", conv());
    norm1 = register_module("norm1", torch::nn::BatchNorm2d(channels));
    norm2 = register_module("norm2", torch::nn::BatchNorm2d(channels));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = torch::relu(norm1(conv1(x)));
    return torch::relu(x + norm2(conv2(y)));
  }

  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool recomputes) : recomputes(recomputes) {
    stem = register_module(
        "stem",
        torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 32, 3).stride(2).padding(1)));
    for (const char* name : {"block1", "block2", "block3"}) {
      blocks.push_back(register_module(name, Block(32)));
    }
    head = register_module("head", torch::nn::Linear(32, 10));
  }

  torch::Tensor forward(const torch::Tensor& images) {
    auto x = torch::relu(stem(images));
    for (auto& block : blocks) {
      x = recomputes ? tandem::checkpoint(block, x) : block(x);  // (3)
    }
    return head(x.mean({2, 3}));
  }

  bool recomputes;
  torch::nn::Conv2d stem{nullptr};
  std::vector<Block> blocks;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "compiled";
  const bool compiled = mode == "compiled";
  const int64_t steps = argc > 2 ? std::atoll(argv[2]) : 200;
  constexpr int64_t kBatchSize = 64;  // the default of tandem::Loader
  torch::manual_seed(1);
  tandem::Loader loader(
      tandem::load_dataset("digits", steps * kBatchSize).train, {}, {});

  Net net(/*recomputes=*/mode == "checkpoint");
  torch::optim::SGD optimizer(
      net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const auto example = torch::zeros({kBatchSize, 1, 28, 28});
  const auto fast = tandem::compile(net, example);  // (1) compile the network

  loader.seek(0);
  double loss_sum = 0;
  tandem::Batch batch;
  const auto start = std::chrono::steady_clock::now();
  while (loader.next(batch)) {
    optimizer.zero_grad();
    const auto output = compiled ? fast(batch.inputs)  // (2) call it
                                 : net->forward(batch.inputs);
    auto loss = torch::nn::functional::cross_entropy(output, batch.targets);
    loss.backward();
    optimizer.step();
    loss_sum += loss.item<double>();
  }
  const std::chrono::duration<double, std::milli> time =
      std::chrono::steady_clock::now() - start;
  std::printf(
      "%s: %lld steps, mean loss %.4f, %.1f ms per step\n", mode.c_str(),
      static_cast<long long>(loader.num_batches()),
      loss_sum / static_cast<double>(loader.num_batches()),
      time.count() / static_cast<double>(loader.num_batches()));
}

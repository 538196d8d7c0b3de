// Trains your own network with tandem's trainer. The trainer does everything that
// `tandem train` does: it reads a recipe, reports, evaluates and saves checkpoints.
//
//   tandem launch --nproc-per-node 2 ./custom_model [recipe.toml]

#include <tandem/tandem.h>
#include <torch/nn.h>

#include <cstdio>

namespace nn = torch::nn;

// A residual block: two convolutions with batch norm, added to the input.
struct BlockImpl : nn::Module {
  explicit BlockImpl(int64_t size) {
    const auto conv = nn::Conv2dOptions(size, size, 3).padding(1).bias(false);
    path = register_module(
        "path", nn::Sequential(
                    nn::Conv2d(conv), nn::BatchNorm2d(size), nn::ReLU(),
                    nn::Conv2d(conv), nn::BatchNorm2d(size)));
  }
  at::Tensor forward(const at::Tensor& x) {
    return (x + path->forward(x)).relu();
  }
  nn::Sequential path{nullptr};
};
TORCH_MODULE(Block);

int main(int argc, char** argv) try {
  tandem::RunConfig config;
  config.model.kind = tandem::ModelKind::custom;
  config.data.limit = 6'400;
  config.optimizer = {tandem::OptimizerKind::sgd};
  config.optimizer.lr = 0.05;
  config.optimizer.momentum = 0.9;
  if (argc > 1) {
    tandem::read_recipe(config, argv[1]);
  }
  torch::manual_seed(1);  // Every run starts with the same weights.
  nn::Sequential net(
      nn::Conv2d(nn::Conv2dOptions(1, 8, 3).stride(2).padding(1).bias(false)),
      nn::BatchNorm2d(8), nn::ReLU(), Block(8), nn::MaxPool2d(2), Block(8),
      nn::Flatten(), nn::Linear(8 * 7 * 7, 10));
  auto run = tandem::join_run();
  const auto data = tandem::load_dataset(config.data.source, config.data.limit);
  const auto summary =
      tandem::train(config, data, *run.comm, tandem::make_module_model(net));
  std::printf("rank %d: %.2f %%\n", run.comm->rank(), summary.test.accuracy());
} catch (const std::exception& error) {
  tandem::log_error(tandem::first_line(error));
  return tandem::exit_code(error);
}

// A model of your own in tandem's trainer: everything `tandem train` does, with
// your network.
//
//   tandem launch --nproc-per-node 2 ./custom_model [recipe.toml]

#include <tandem/tandem.h>
#include <torch/nn.h>

#include <cstdio>

namespace {

// A perceptron with a skip connection: not a plain sequence of layers.
struct SkipNetImpl : torch::nn::Module {
  SkipNetImpl() {
    in = register_module("in", torch::nn::Linear(784, 64));
    hidden = register_module("hidden", torch::nn::Linear(64, 64));
    out = register_module("out", torch::nn::Linear(64, 10));
  }
  at::Tensor forward(const at::Tensor& images) {
    const auto x = in(images.flatten(1)).relu();
    return out(x + hidden(x).relu());
  }
  torch::nn::Linear in{nullptr}, hidden{nullptr}, out{nullptr};
};
TORCH_MODULE(SkipNet);

std::unique_ptr<tandem::Model> make_skip_net() {
  SkipNet net;
  std::vector<tandem::NamedTensor> parameters;
  for (const auto& item : net->named_parameters()) {
    parameters.push_back({item.key(), item.value()});
  }
  return tandem::make_function_model(
      [net](const at::Tensor& images) mutable { return net->forward(images); },
      parameters);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    tandem::RunConfig config;
    config.model.kind = tandem::ModelKind::custom;
    config.data.limit = 6'400;
    config.optimizer.kind = tandem::OptimizerKind::sgd;
    config.optimizer.lr = 0.05;
    config.optimizer.momentum = 0.9;
    if (argc > 1) {
      tandem::read_recipe(config, argv[1]);
    }
    torch::manual_seed(1);  // else each run begins with other weights
    auto run = tandem::join_run();
    const auto data = tandem::load_dataset(config.data.source, config.data.limit);
    const auto summary = tandem::train(config, data, *run.comm, make_skip_net());
    std::printf("rank %d: %.2f %%\n", run.comm->rank(), summary.test.accuracy());
    return 0;
  } catch (const std::exception& error) {
    tandem::log_error(tandem::first_line(error));
    return tandem::exit_code(error);
  }
}

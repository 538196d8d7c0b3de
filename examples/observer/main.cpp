// Observes a run: prints its own lines and stops the run at 92 % test accuracy. The run
// uses a custom model, a custom loss and early stopping, and keeps the best checkpoint.
//
//   tandem launch --nproc-per-node 2 ./observer runs/observed
//
// `tandem eval` cannot build the custom model, so this program also evaluates the
// checkpoint:
//
//   ./observer --eval runs/observed/checkpoints/best

#include <tandem/tandem.h>
#include <torch/nn.h>

#include <cstdio>
#include <string>

namespace {

std::unique_ptr<tandem::Model> make_perceptron() {
  torch::manual_seed(1);  // Every run starts with the same weights.
  return tandem::make_module_model(torch::nn::Sequential(
      torch::nn::Flatten(), torch::nn::Linear(784, 64), torch::nn::ReLU(),
      torch::nn::Linear(64, 10)));
}

// Cross-entropy with smoothed labels, summed over the samples. tandem divides the sum
// by the number of samples of all ranks.
at::Tensor smoothed_loss(const at::Tensor& outputs, const at::Tensor& targets) {
  const auto options =
      torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(0.1).reduction(
          torch::kSum);
  return torch::nn::functional::cross_entropy(outputs, targets, options);
}

class Watcher : public tandem::Observer {
 public:
  explicit Watcher(int rank) : rank_(rank) {}

  tandem::Next on_step(const tandem::StepReport& step) override {
    samples_ += step.sums.values().samples;
    return tandem::Next::proceed;
  }
  tandem::Next on_epoch(const tandem::EpochReport& epoch) override {
    std::printf(
        "rank %d, epoch %d: loss %.4f, %.0f samples of this rank\n", rank_,
        static_cast<int>(epoch.epoch) + 1, epoch.loss, samples_);
    return tandem::Next::proceed;
  }
  // If one rank returns stop, the run ends on all ranks.
  tandem::Next on_evaluation(const tandem::TestReport& test) override {
    return test.accuracy() >= 92 ? tandem::Next::stop : tandem::Next::proceed;
  }
  void on_checkpoint(const std::string& path) override {
    std::printf("saved %s\n", path.c_str());
  }

 private:
  int rank_;
  double samples_ = 0;
};

int evaluate(const std::string& checkpoint) {
  const auto report =
      tandem::evaluate_checkpoint(checkpoint, {}, make_perceptron(), &smoothed_loss);
  std::printf("%s: %.2f %%\n", checkpoint.c_str(), report.accuracy());
  return 0;
}

int train(const std::string& out) {
  tandem::RunConfig config;
  config.model.kind = tandem::ModelKind::custom;
  config.data.limit = 6'400;
  config.optimizer.kind = tandem::OptimizerKind::sgd;
  config.optimizer.lr = 0.1;
  config.optimizer.momentum = 0.9;
  config.training.epochs = 20;
  config.training.patience = 3;
  config.output.out = out;
  config.output.keep_best = true;
  config.output.log_line = "off";
  auto run = tandem::join_run();
  Watcher watcher(run.comm->rank());
  tandem::CustomParts own(make_perceptron());
  own.loss = &smoothed_loss;
  own.observer = &watcher;
  const auto data = tandem::load_dataset(config.data.source, config.data.limit);
  const auto summary = tandem::train(config, data, *run.comm, std::move(own));
  std::printf(
      "rank %d: %.2f %%, ended by %s\n", run.comm->rank(), summary.test.accuracy(),
      summary.ended_by.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string first = argc > 1 ? argv[1] : "";
    return first == "--eval" && argc > 2 ? evaluate(argv[2]) : train(first);
  } catch (const std::exception& error) {
    tandem::log_error(tandem::first_line(error));
    return tandem::exit_code(error);
  }
}

// A LibTorch training loop that the lines marked (1), (2) and (3) make data-parallel.
//
//   tandem launch --nproc-per-node 2 ./own_loop [EPOCHS] [SAMPLES]

#include <tandem/tandem.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const int64_t epochs = argc > 1 ? std::atoll(argv[1]) : 1;
  const int64_t samples = argc > 2 ? std::atoll(argv[2]) : 60'000;
  const auto data = tandem::load_dataset("digits", samples).train;
  auto run = tandem::join_run();  // (1) join the other ranks

  torch::nn::Sequential net(
      torch::nn::Flatten(), torch::nn::Linear(784, 128), torch::nn::ReLU(),
      torch::nn::Linear(128, 10));
  tandem::DistributedDataParallel ddp(*net, *run.comm);  // (2) average gradients
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05));

  tandem::SamplerOptions shard;  // (3) read this rank's part of the samples
  shard.num_shards = run.comm->size();
  shard.shard = run.comm->rank();
  tandem::Loader loader(data, shard, {});

  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    loader.seek(epoch);
    tandem::Batch batch;
    double loss_sum = 0;
    while (loader.next(batch)) {
      optimizer.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(
          net->forward(batch.inputs), batch.targets);
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>();
    }
    std::printf(
        "rank %d  epoch %lld  loss %.4f\n", run.comm->rank(),
        static_cast<long long>(epoch + 1),
        loss_sum / static_cast<double>(loader.num_batches()));
  }
  ddp.check();  // check that all ranks trained one model
  std::printf("weights %s\n", ddp.arenas().parameters_sha256().c_str());
  return 0;
}

// A LibTorch training loop in which each rank keeps only its share of the optimizer's
// state, of the gradients, or of the parameters, and computes products in bfloat16.
//
//   tandem launch --nproc-per-node 2 ./sharded_loop [SHARD] [EPOCHS] [SAMPLES]
//
// SHARD is none, optimizer, gradients or parameters.

#include <tandem/parallel/ddp/sharded_optimizer.h>
#include <tandem/tandem.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const int64_t epochs = argc > 2 ? std::atoll(argv[2]) : 1;
  const int64_t samples = argc > 3 ? std::atoll(argv[3]) : 60'000;
  const auto data = tandem::load_dataset("digits", samples).train;
  auto run = tandem::join_run();

  torch::manual_seed(1);
  torch::nn::Sequential net(
      torch::nn::Flatten(), torch::nn::Linear(784, 512), torch::nn::ReLU(),
      torch::nn::Linear(512, 10));
  tandem::DistributedDataParallelOptions options;
  options.shard = tandem::parse_choice<tandem::Sharding>(
      "SHARD", argc > 1 ? argv[1] : "parameters");
  options.join = true;
  tandem::DistributedDataParallel ddp(*net, *run.comm, options);
  tandem::ShardedOptimizer<torch::optim::Adam> optimizer(
      ddp, torch::optim::AdamOptions(1e-3));
  tandem::GradScaler scaler;

  tandem::SamplerOptions shard;
  shard.num_shards = run.comm->size();
  shard.shard = run.comm->rank();
  shard.tail = tandem::Tail::keep;  // read each sample exactly once
  tandem::Loader loader(data, shard, {});

  const auto step = [&] {
    scaler.unscale(optimizer);
    ddp.clip_grad_norm(1.0);
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
  };
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    loader.seek(epoch);
    tandem::Batch batch;
    double loss_sum = 0;
    while (loader.next(batch)) {
      ddp.pass([&] {
        torch::Tensor loss;
        {
          const tandem::Autocast autocast;
          loss = torch::nn::functional::cross_entropy(
              net->forward(batch.inputs), batch.targets);
        }
        loss_sum += loss.item<double>();
        scaler.scale(loss).backward();
      });
      step();
    }
    ddp.join(step);  // takes part in the steps of ranks that have more batches
    std::printf(
        "rank %d  epoch %lld  loss %.4f\n", run.comm->rank(),
        static_cast<long long>(epoch + 1),
        loss_sum / static_cast<double>(loader.num_batches()));
  }
  ddp.check();
  ddp.gather_parameters();
  std::printf("weights %s\n", ddp.arenas().parameters_sha256().c_str());
  return 0;
}

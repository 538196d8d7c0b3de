// A LibTorch training loop in which each rank keeps only its share of the optimizer's
// state, of the gradients, or of the parameters, and computes products in bfloat16.
//
//   tandem launch --nproc-per-node 2 ./sharded_loop [SHARD] [EPOCHS] [SAMPLES]
//   [DIRECTORY]
//
// SHARD is none, optimizer, gradients or parameters. With a DIRECTORY, the loop saves a
// checkpoint after each epoch and resumes from the newest one, on any number of ranks
// and with any SHARD.

#include <tandem/parallel/ddp/sharded_optimizer.h>
#include <tandem/tandem.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cstdio>
#include <cstdlib>
#include <string>

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

  const std::string directory = argc > 4 ? argv[4] : "";
  tandem::Checkpoint checkpoint(directory, *net, optimizer, *run.comm);
  checkpoint.add_state(scaler.state().named_views());
  tandem::Position at;
  if (!directory.empty()) {
    checkpoint.resume(at);
  }

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
    ++at.step;
  };
  while (at.epoch < epochs) {
    loader.seek(at.epoch);
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
        static_cast<long long>(++at.epoch),
        loss_sum / static_cast<double>(loader.num_batches()));
    if (!directory.empty()) {
      checkpoint.save(at);
    }
  }
  ddp.check();
  ddp.gather_parameters();
  std::printf("weights %s\n", ddp.arenas().parameters_sha256().c_str());
  return 0;
}

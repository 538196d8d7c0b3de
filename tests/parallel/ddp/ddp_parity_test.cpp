// Compares DistributedDataParallel with PyTorch: each row of the table in its header,
// on 2, 3 and 4 ranks, in float64. The cases and the model are those of the peer,
// tests/parity/ddp_peer.py.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "tandem/parallel/ddp/distributed_data_parallel.h"
#include "tests/comm/group.h"
#include "tests/parity/numbers.h"
#include "tests/parity/python.h"

namespace tandem::ddp_parity_test {

using Json = nlohmann::json;

constexpr int kSteps = 4;

Numbers flat(const std::vector<NamedTensor>& tensors, bool gradients = false) {
  Numbers all;
  for (const auto& entry : tensors) {
    const auto& tensor = gradients ? entry.tensor.grad() : entry.tensor;
    const auto values = tandem::flat(tensor);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// The counterpart of the peer's Net.
struct Net {
  Net(int rank, bool unused) : uses_extra(!unused || rank == 0), uses_never(!unused) {
    const std::vector<std::pair<const char*, std::vector<int64_t>>> shapes = {
        {"w1", {4, 3}}, {"b1", {4}},     {"scale", {4}}, {"shift", {4}},
        {"w2", {2, 4}}, {"frozen", {2}}, {"extra", {3}}, {"never", {2}}};
    for (const auto& [name, dims] : shapes) {
      const auto salt = static_cast<int64_t>(parameters.size()) + 3 * rank;
      parameters.push_back({name, numbers(salt, dims)});
      parameters.back().tensor.set_requires_grad(std::string(name) != "frozen");
    }
    buffers = {
        {"running_mean", numbers(20 + rank, {4})},
        {"running_var", 1 + numbers(30 + rank, {4}).abs()},
        {"memory", numbers(40 + rank, {2})},
        {"count", at::tensor(7 + rank, at::kLong)}};
  }

  static const at::Tensor& of(
      const std::vector<NamedTensor>& tensors, const std::string& name) {
    return std::find_if(
               tensors.begin(), tensors.end(),
               [&](const auto& entry) { return entry.name == name; })
        ->tensor;
  }

  at::Tensor forward(const at::Tensor& x) {
    before.push_back(flat(buffers));
    const auto parameter = [&](const char* name) { return of(parameters, name); };
    const auto buffer = [&](const char* name) { return of(buffers, name); };
    auto h = at::linear(x, parameter("w1"), parameter("b1"));
    h = at::batch_norm(
        h, parameter("scale"), parameter("shift"), buffer("running_mean"),
        buffer("running_var"), true, 0.1, 1e-5, false);
    buffer("count").add_(1);
    auto y = at::linear(at::relu(h), parameter("w2")) + parameter("frozen") +
             buffer("memory");
    if (uses_extra) {
      y = y + parameter("extra").sum();
    }
    if (uses_never) {
      y = y + parameter("never");
    }
    buffer("memory").mul_(0.5).add_(y.detach().mean(0), 0.25);
    return y;
  }

  std::vector<NamedTensor> trainable() const {
    std::vector<NamedTensor> found;
    for (const auto& entry : parameters) {
      if (entry.tensor.requires_grad()) {
        found.push_back(entry);
      }
    }
    return found;
  }

  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  bool uses_extra;
  bool uses_never;
  // The buffers at the start of each forward.
  std::vector<Numbers> before;
};

enum class How { plain, no_sync, twice, two_losses };

struct Case {
  std::string name;
  DistributedDataParallelOptions options = {};
  How how = How::plain;
  bool unused = false;
  bool in_groups = false;
  std::vector<std::string> ignored = {};
  double tolerance = 1e-13;
};

template <typename Change>
DistributedDataParallelOptions with(const Change& change) {
  DistributedDataParallelOptions options;
  change(options);
  return options;
}

// The counterpart of the peer's own_hook().
std::function<void()> own_hook(Communicator& comm, const GradBucket& bucket) {
  bucket.flat.mul_(2);
  auto work = comm.all_reduce(bucket.flat);
  return [work, flat = bucket.flat, divisor = 1 + comm.size()] {
    work->wait();
    flat.div_(divisor);
  };
}

std::vector<Case> cases() {
  using Options = DistributedDataParallelOptions;
  const auto small = with([](Options& o) { o.bucket_bytes = 10; });
  std::vector<Case> all = {
      {"plain"}, {"small_buckets", small}, {"bucket_views"}, {"static_graph", small}};
  all.push_back({"buffers_off", with([](Options& o) { o.buffers = BufferSync::off; })});
  all.push_back(
      {"buffers_average", with([](Options& o) { o.buffers = BufferSync::average; })});
  all.push_back({"unused", small, How::plain, true});
  all.push_back({"group", {}, How::plain, false, true});
  all.push_back({"ignored", {}, How::plain, false, false, {"extra", "count"}});
  all.push_back({"no_sync", small, How::no_sync});
  all.push_back({"twice", small, How::twice});
  all.push_back({"two_losses", small, How::two_losses});
  all.push_back({"sum", with([](Options& o) { o.reduction = Reduction::sum; })});
  all.push_back({"own_hook", with([](Options& o) {
                   o.bucket_hook = own_hook;
                   o.bucket_bytes = 10;
                 })});
  all.push_back({"fp16", with([](Options& o) { o.comm_hook = CommHook::fp16; })});
  // The order of sums changes the last bits of fp16 values, over four steps.
  all.back().tolerance = 4e-3;
  return all;
}

void backward(
    How how, Net& net, DistributedDataParallel& ddp,
    const std::function<at::Tensor()>& next) {
  if (how == How::two_losses) {
    const auto y = net.forward(next());
    y.square().mean().backward({}, /*retain_graph=*/true);
    y.sum().backward();
    return;
  }
  if (how == How::no_sync) {
    const auto scope = ddp.no_sync();
    net.forward(next()).square().mean().backward();
  }
  if (how == How::twice) {
    net.forward(next()).square().mean().backward();
  }
  net.forward(next()).square().mean().backward();
}

struct Seen {
  std::vector<Numbers> gradients;
  std::vector<Numbers> before;
  Numbers buffers;
  Numbers parameters;
  std::vector<std::string> names;
};

std::vector<NamedTensor> lacking(
    std::vector<NamedTensor> tensors, const std::vector<std::string>& names) {
  tensors.erase(
      std::remove_if(
          tensors.begin(), tensors.end(),
          [&](const auto& entry) {
            return std::find(names.begin(), names.end(), entry.name) != names.end();
          }),
      tensors.end());
  return tensors;
}

// The counterpart of the peer's run().
Seen run(const Case& which, Communicator& world) {
  Net net(world.rank(), which.unused);
  const auto group = which.in_groups ? world.split(world.rank() % 2) : nullptr;
  DistributedDataParallel ddp(
      lacking(net.parameters, which.ignored), lacking(net.buffers, which.ignored),
      group ? *group : world, which.options);
  int64_t drawn = 0;
  const auto next = [&] {
    return numbers(2 * drawn++ + 3 * world.rank() + 1, {5, 3}) + world.rank();
  };
  Seen seen;
  for (int step = 0; step < kSteps; ++step) {
    backward(which.how, net, ddp, next);
    seen.gradients.push_back(flat(net.trainable(), true));
    const at::NoGradGuard guard;
    for (const auto& entry : net.trainable()) {
      entry.tensor.add_(entry.tensor.grad(), -0.1);
      at::Tensor(entry.tensor).mutable_grad() = at::Tensor();
    }
  }
  seen.before = net.before;
  seen.buffers = flat(net.buffers);
  seen.parameters = flat(net.parameters);
  for (const auto& entry : ddp.arenas().state()) {
    seen.names.push_back("module." + entry.name);
  }
  std::sort(seen.names.begin(), seen.names.end());
  return seen;
}

// The counterpart of the peer's batch_norm_example(): LibTorch's module in a custom
// loop.
Numbers batch_norm_example(Communicator& comm) {
  torch::nn::BatchNorm1d net(4);
  net->to(at::kDouble);
  DistributedDataParallel ddp(*net, comm);
  for (int64_t step = 0; step < 5; ++step) {
    net->zero_grad();
    net->forward(numbers(step, {6, 4}) + comm.rank()).square().mean().backward();
    const at::NoGradGuard guard;
    for (const auto& parameter : net->parameters()) {
      parameter.add_(parameter.grad(), -0.1);
    }
  }
  return flat({{"running_mean", net->running_mean}});
}

class DdpParity : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (python_has("torch")) {
      const auto result = run_python({source_dir() + "/tests/parity/ddp_peer.py"});
      // Warnings of PyTorch may precede the JSON.
      const size_t begin = result.output.find("{\"plain\"");
      if (begin != std::string::npos) {
        peer_ = Json::parse(result.output.substr(begin), nullptr, false);
      }
    }
  }

  void SetUp() override {
    TANDEM_NEEDS_PYTHON_TORCH();
    ASSERT_TRUE(peer_.is_object()) << "ddp_peer.py gave no JSON";
  }

  // Returns the results of PyTorch's ranks.
  static const Json& ranks_of(const std::string& name, int size) {
    return peer_.at(name).at(std::to_string(size));
  }

  static inline Json peer_;
};

TEST_F(DdpParity, EachRowOfTheTableMatchesPyTorch) {
  for (const auto& which : cases()) {
    double largest = 0;
    for (int size = 2; size <= 4; ++size) {
      const auto ours = on_each_rank(
          "thread", size, [&](Communicator& comm) { return run(which, comm); });
      for (size_t rank = 0; rank < ours.size(); ++rank) {
        SCOPED_TRACE(
            which.name + ", rank " + std::to_string(rank) + " of " +
            std::to_string(size));
        const auto& mine = ours[rank];
        const auto& theirs = ranks_of(which.name, size)[rank];
        const double off[] = {
            difference(mine.gradients, theirs["gradients"]),
            difference(mine.before, theirs["before"]),
            difference(mine.parameters, theirs["parameters"].get<Numbers>())};
        EXPECT_LE(off[0], which.tolerance) << "gradients of a step";
        EXPECT_LE(off[1], which.tolerance) << "buffers at the start of a forward";
        EXPECT_LE(off[2], which.tolerance) << "parameters at the end";
        largest = std::max({largest, off[0], off[1], off[2]});
        if (which.ignored.empty()) {
          EXPECT_EQ(mine.names, theirs["names"].get<std::vector<std::string>>());
        }
      }
    }
    std::printf("%-16s largest difference %.1e\n", which.name.c_str(), largest);
  }
}

// At the end, PyTorch's other ranks have their own buffers; here they have rank 0's.
TEST_F(DdpParity, FinalBuffersEqualThoseOfPyTorchsRank0) {
  for (const auto& which : cases()) {
    const bool broadcast = which.options.buffers == BufferSync::broadcast;
    for (int size = 2; size <= 4; ++size) {
      SCOPED_TRACE(which.name + " of " + std::to_string(size));
      const auto ours = on_each_rank(
          "thread", size, [&](Communicator& comm) { return run(which, comm); });
      for (size_t rank = 0; rank < ours.size(); ++rank) {
        const size_t root = !broadcast ? rank : which.in_groups ? rank % 2 : 0;
        auto mine = ours[rank].buffers;
        auto peer = ranks_of(which.name, size)[root]["buffers"].get<Numbers>();
        if (!which.ignored.empty()) {
          // The last buffer is the count, which is ignored.
          mine.pop_back();
          peer.pop_back();
        }
        EXPECT_LE(difference(mine, peer), which.tolerance) << rank;
      }
    }
  }
}

TEST_F(DdpParity, PyTorchHasNoGradientsOfUnusedParameters) {
  const std::vector<std::string> never = {"never"};
  for (int size = 2; size <= 4; ++size) {
    for (const auto& rank : ranks_of("unused", size)) {
      EXPECT_EQ(rank["without"].get<std::vector<std::string>>(), never);
    }
  }
}

TEST_F(DdpParity, RunningMeansOfACustomLoopEqualThoseOfPyTorchsRank0) {
  const auto sum = [](const Numbers& all) {
    return std::accumulate(all.begin(), all.end(), 0.0);
  };
  for (const std::string backend : {"thread", "shm", "gloo"}) {
    for (int size = 2; size <= 4; ++size) {
      const auto ours = on_each_rank(backend, size, batch_norm_example);
      const auto& theirs = ranks_of("batch_norm_example", size);
      for (size_t rank = 0; rank < ours.size(); ++rank) {
        EXPECT_LE(difference(ours[rank], theirs[0].get<Numbers>()), 1e-13) << size;
        std::printf(
            "%s, rank %zu of %d: sum of running means %.15f, PyTorch %.15f\n",
            backend.c_str(), rank, size, sum(ours[rank]),
            sum(theirs[rank].get<Numbers>()));
      }
    }
  }
}

}  // namespace tandem::ddp_parity_test

// Networks that the newest PyTorch exported: training equals PyTorch's, also sharded.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "tests/parity/python.h"

namespace tandem::network_parity_test {

class NetworkParity : public testing::Test {
 protected:
  void SetUp() override {
    if (!python_has("torch numpy", newest_python())) {
      GTEST_SKIP()
          << "no torch of PyPI; scripts/setup --torchrun, then scripts/test -R "
             "NetworkParity";
    }
  }
};

// The script has all modules and functions; these stand for the kinds of operators that
// tandem computes itself.
TEST_F(NetworkParity, ModulesOfTorchTrainAsInPyTorch) {
  const Scratch scratch;
  const auto found = run_python(
      {source_dir() + "/tests/graph/nn_parity.py", program(), scratch.path(),
       "nn.BatchNorm2d(frozen)", "nn.InstanceNorm2d(stats)", "nn.RMSNorm",
       "nn.LSTM(dropout)", "nn.ChannelShuffle", "nn.MultiheadAttention",
       "nn.spectral_norm", "nn.AlphaDropout", "F.no_grad", "F.tensor",
       "F.stochastic_depth", "F.gumbel_softmax(hard)"},
      newest_python());
  EXPECT_TRUE(found.status.ok()) << found.output << found.errors;
  EXPECT_THAT(found.output, testing::HasSubstr("12 trained"));
}

TEST_F(NetworkParity, ShardedTrainingEqualsFsdp2) {
  struct Ranks {
    const char* backend;
    const char* count;
    const char* steps;
  };
  for (const auto& [backend, count, steps] :
       {Ranks{"shm", "4", "24"}, Ranks{"gloo", "3", "24"}}) {
    SCOPED_TRACE(backend);
    const Scratch scratch;
    const auto found = run_python(
        {source_dir() + "/tests/parity/fsdp_peer.py", program(), scratch.path(),
         backend, count, steps},
        newest_python());
    EXPECT_TRUE(found.status.ok()) << found.output << found.errors;
    EXPECT_THAT(found.output, testing::HasSubstr("--shard parameters over"));
  }
}

TEST_F(NetworkParity, OptimizersEqualTorchOptim) {
  const Scratch scratch;
  const auto found = run_python(
      {source_dir() + "/tests/parity/optimizer_peer.py", program(), scratch.path()},
      newest_python());
  EXPECT_TRUE(found.status.ok()) << found.output << found.errors;
  EXPECT_THAT(found.output, testing::HasSubstr("muon: "));
}

}  // namespace tandem::network_parity_test

// Networks of torch.nn, exported by the newest PyTorch: training equals PyTorch's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "tests/parity/python.h"

namespace tandem::network_parity_test {

// The script has all modules and functions; these stand for the kinds of operators that
// tandem computes itself.
TEST(NetworkParity, ModulesOfTorchTrainAsInPyTorch) {
  if (!python_has("torch numpy", newest_python())) {
    GTEST_SKIP() << "no torch of PyPI; scripts/setup --torchrun, then scripts/test -R "
                    "NetworkParity";
  }
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

}  // namespace tandem::network_parity_test

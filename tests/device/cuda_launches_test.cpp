// How many kernels a step is, which the emulator counts.

#include <gtest/gtest.h>

#include "tests/cuda/emulator/block_emulator.h"
#include "tests/device/cuda_rig.h"

namespace tandem::cuda_launches_test {

// Of the first document's model: forward, a convolution with its ReLU, one with ReLU,
// pool and dropout, two linear layers, the loss; backward, two linear layers, the pool,
// two convolutions.
TEST(CudaExecutor, AStepOfTheFirstDocumentsModelIsTenKernels) {
  const Case& net = kModels[0];
  Pair pair(net, kFp32);
  const auto before = emulator::launches;
  pair.cuda.step(batch_of(net, 0, 2), context_of(true));
  EXPECT_EQ(emulator::launches, before + 10);
}

}  // namespace tandem::cuda_launches_test

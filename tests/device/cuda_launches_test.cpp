// How many kernels a step is, which the emulator counts.

#include <gtest/gtest.h>

#include "tests/cuda/emulator/block_emulator.h"
#include "tests/device/cuda_rig.h"

namespace tandem::cuda_launches_test {

// Of the first document's model, with as many inputs of its first linear layer as make
// a second kernel for that: 7 forward, of which the loss is one, and 10 backward.
TEST(CudaExecutor, AStepOfTheFirstDocumentsModelIsSeventeenKernels) {
  Case net = kModels[0];
  net.input = {1, 26, 26};
  net.layers[7].in = 5 * 11 * 11;
  Pair pair(net, kFp32);
  const auto before = emulator::launches;
  pair.cuda.step(batch_of(net, 0, 2), context_of(true));
  EXPECT_EQ(emulator::launches, before + 17);
}

}  // namespace tandem::cuda_launches_test
